"""Everything that the adviser's page says, evaluated: for the page, its first lines and JSON."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fedkeel.theory import advice
from fedkeel.theory.fedsagd import table_1

if TYPE_CHECKING:
    from fedkeel.experiments.experiment import Experiment
    from fedkeel.studies.constants import Findings
    from fedkeel.theory.advice import AdviceInputs, Limit, PredictedRounds, TheoremCheck


class MeasuredStability(NamedTuple):
    """A measured discrepancy, and after how many rounds; None: as many as the run has."""

    value: float
    rounds: int | None


class StabilityComparison(NamedTuple):
    """A method's stability bound after some rounds (inf: void), why it is void, and what was measured."""

    method: str
    rounds: int
    bound: float
    reason: str
    measured: float | None


class AdvicePage(NamedTuple):
    """Everything on the page."""

    title: str
    found: Findings
    inputs: AdviceInputs
    local: tuple[Limit, ...]
    globally: tuple[Limit, ...]
    own: PredictedRounds
    best: PredictedRounds
    betas: tuple[Limit, ...]
    theorem_checks: tuple[TheoremCheck, ...]
    stability: tuple[StabilityComparison, ...]
    caveats: tuple[str, ...]

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        found: Findings,
        inputs: AdviceInputs,
        measured: dict[str, MeasuredStability],
    ) -> AdvicePage:
        """Evaluate every theorem."""
        title = (
            f"{experiment.method} on {experiment.data.name}: K = {inputs.K} local steps of {inputs.eta_l:g}, "
            f"{inputs.N} of {inputs.C} clients, T = {inputs.T} rounds; pilot of {found.pilot_rounds} rounds, "
            f"seed {experiment.seed}"
        )
        return cls(
            title,
            found,
            inputs,
            advice.local_limits(inputs),
            advice.global_limits(inputs),
            advice.as_run(inputs),
            advice.best_steps(inputs),
            advice.beta_limits(inputs),
            advice.theorem_checks(inputs),
            _stability(inputs, measured),
            advice.caveats(inputs),
        )


def _stability(
    inputs: AdviceInputs, measured: dict[str, MeasuredStability]
) -> tuple[StabilityComparison, ...]:
    """Put what was measured beside Table 1, at equal rounds; methods without a row come last."""
    run = inputs.stability_run
    left = {
        name.partition("(")[0].strip().lower(): (name, measurement) for name, measurement in measured.items()
    }
    rows = []
    for index, row in enumerate(table_1(run)):
        _, measurement = left.pop(row.method.lower(), ("", None))
        rounds = inputs.T if measurement is None or measurement.rounds is None else measurement.rounds
        bound = table_1(replace(run, T=rounds))[index].over_rounds
        reason = "; ".join(f"{c.name} is {c.verdict}" for c in bound.violated)
        rows.append(
            StabilityComparison(
                row.method,
                rounds,
                bound.guaranteed,
                reason,
                None if measurement is None else measurement.value,
            )
        )
    for name, (value, after) in left.values():
        rows.append(StabilityComparison(name, after or inputs.T, math.inf, "not in Table 1", value))
    return tuple(rows)
