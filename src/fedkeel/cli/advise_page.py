"""The adviser's page, for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fedkeel.cli.constants import number, print_constants
from fedkeel.cli.display import console, plain_table

if TYPE_CHECKING:
    from fedkeel.experiments.experiment import Experiment
    from fedkeel.studies.constants import Findings
    from fedkeel.theory.advice import Given, Limit, Prospect, Verdict


class Seen(NamedTuple):
    """A measured discrepancy, and after how many rounds; None: as many as the run has."""

    value: float
    rounds: int | None


class Bounded(NamedTuple):
    """A method's stability bound after some rounds (inf: void), why it is void, and what was measured."""

    method: str
    rounds: int
    bound: float
    reason: str
    measured: float | None


class Page(NamedTuple):
    """Everything the adviser has to say."""

    title: str
    found: Findings
    given: Given
    local: tuple[Limit, ...]
    globally: tuple[Limit, ...]
    own: Prospect
    best: Prospect
    betas: tuple[Limit, ...]
    verdicts: tuple[Verdict, ...]
    stability: tuple[Bounded, ...]
    partings: tuple[str, ...]

    @classmethod
    def of(cls, experiment: Experiment, found: Findings, given: Given, measured: dict[str, Seen]) -> Page:
        """Ask every calculator."""
        from fedkeel.theory import advice  # noqa: PLC0415  heavy

        title = (
            f"{experiment.method} on {experiment.data.name}: K = {given.K} local steps of {given.eta_l:g}, "
            f"{given.N} of {given.C} clients, T = {given.T} rounds; pilot of {found.pilot_rounds} rounds, "
            f"seed {experiment.seed}"
        )
        return cls(
            title,
            found,
            given,
            advice.local_limits(given),
            advice.global_limits(given),
            advice.as_run(given),
            advice.best_steps(given),
            advice.beta_limits(given),
            advice.verdicts(given),
            _stability(given, measured),
            advice.partings(given),
        )


def _stability(given: Given, measured: dict[str, Seen]) -> tuple[Bounded, ...]:
    """Stand what was measured beside Table 1, after as many rounds; methods without a row come last."""
    from fedkeel.theory.fedsagd import table_1  # noqa: PLC0415

    run = given.stability_run
    left = {name.partition("(")[0].strip().lower(): (name, seen) for name, seen in measured.items()}
    rows = []
    for place, row in enumerate(table_1(run)):
        _, seen = left.pop(row.method.lower(), ("", None))
        rounds = given.T if seen is None or seen.rounds is None else seen.rounds
        bound = table_1(replace(run, T=rounds))[place].over_rounds
        reason = "; ".join(f"{c.name} is {c.verdict}" for c in bound.violated)
        rows.append(
            Bounded(row.method, rounds, bound.guaranteed, reason, None if seen is None else seen.value)
        )
    for name, (value, after) in left.values():
        rows.append(Bounded(name, after or given.T, math.inf, "not in Table 1", value))
    return tuple(rows)


def print_page(page: Page) -> None:
    """Print the page."""
    screen = console()

    def say(text: str = "") -> None:
        screen.print(text, markup=False, soft_wrap=True)

    def head(text: str) -> None:
        say()
        screen.print(text, style="bold", markup=False, soft_wrap=True)

    say(page.title)
    head("Constants, along and around the pilot")
    print_constants(page.found)
    head(f"Largest safe local rate (yours: η_l = {page.given.eta_l:g})")
    screen.print(_limits(page.local))
    head(f"Largest safe global rate (yours: η_g = {page.given.eta_g:g})")
    screen.print(_limits(page.globally))
    head(f"Rounds to a loss of ε = {page.given.epsilon:.3g} (Corollary 4.8, repaired)")
    say(f"with your steps:      {_prospect(page.own)}")
    say(f"with the best steps:  {_prospect(page.best)}")
    head(f"Range of β for relaxed initialisation (asked: β = {page.given.beta:g})")
    screen.print(_limits(page.betas))
    head("Conditions")
    for line in _conditions(page.verdicts):
        say(line)
    head(f"Stability: ‖x_T − x_T'‖ with one client replaced, Θ = {page.given.theta:.3g} (FedSAGD, Table 1)")
    screen.print(_bounds_table(page.stability))
    head("Where theory and practice part company")
    for sentence in page.partings:
        say(f"- {sentence}")


def as_json_value(page: Page) -> dict[str, Any]:
    """Return the page for JSON; null stands for infinity."""
    given = page.given
    return {
        "run": {
            **{
                key: getattr(given, key)
                for key in ("K", "N", "C", "S", "T", "eta_l", "eta_g", "beta", "epsilon")
            },
            "theta": given.theta,
        },
        **page.found.as_dict(),
        "local_rate": [_limit_dict(one) for one in page.local],
        "global_rate": [_limit_dict(one) for one in page.globally],
        "rounds": {"own_steps": _prospect_dict(page.own), "best_steps": _prospect_dict(page.best)},
        "beta_range": [_limit_dict(one) for one in page.betas],
        "conditions": [
            {
                "theorem": one.theorem,
                "bounds": one.bounds,
                "value": _finite(one.value),
                "conditions": [
                    {
                        "name": c.name,
                        "holds": c.holds,
                        "factor": _finite(c.factor),
                        "verdict": c.verdict,
                        "text": c.text,
                    }
                    for c in one.conditions
                ],
            }
            for one in page.verdicts
        ],
        "stability": [{**one._asdict(), "bound": _finite(one.bound)} for one in page.stability],
        "partings": list(page.partings),
    }


def _limits(limits: tuple[Limit, ...]) -> Any:
    table = plain_table(
        ("", "largest", "", ""), [(one.who, number(one.limit), one.verdict, one.why) for one in limits]
    )
    for column in table.columns[2:]:
        column.justify = "left"
    return table


def _prospect(one: Prospect) -> str:
    if one.steps is None or not one.reachable:
        return f"nothing is promised: {one.reason}"
    steps = f"η_l = {one.steps.eta_l:.3g}, η_g = {one.steps.eta_g:.3g}"
    return f"{max(0, math.ceil(one.rounds)):,} rounds, {steps}, floor {number(one.floor)}"


def _headline(verdict: Verdict) -> str:
    value = "" if math.isinf(verdict.value) else f" ≤ {number(verdict.value)}"
    state = "all conditions hold" if verdict.holds else "void here" if not value else "not guaranteed here"
    return f"{verdict.theorem}, {verdict.bounds}{value}: {state}"


def _conditions(verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    """Yield the lines of all theorems; what several ask for is told once."""
    told: set[str] = set()
    for verdict in verdicts:
        yield _headline(verdict)
        lines = [str(condition) for condition in verdict.conditions]
        yield from (f"  {line}" for line in lines if line not in told)
        again = sum(line in told for line in lines)
        if again:
            yield f"  and {again} conditions told above"
        told |= set(lines)


def _bounds_table(rows: tuple[Bounded, ...]) -> Any:
    shown = [
        (
            row.method,
            str(row.rounds),
            number(row.bound) if math.isfinite(row.bound) else "—",
            "—" if row.measured is None else number(row.measured),
            row.reason or _compared(row),
        )
        for row in rows
    ]
    table = plain_table(("method", "rounds", "bound", "measured", ""), shown)
    table.columns[-1].justify = "left"
    return table


def _compared(row: Bounded) -> str:
    if row.measured is None or row.measured == 0:
        return ""
    return f"bound is {row.bound / row.measured:.3g} times what was measured"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _limit_dict(one: Limit) -> dict[str, Any]:
    return {"by": one.who, "largest": one.limit, "own": one.own, "verdict": one.verdict, "why": one.why}


def _prospect_dict(one: Prospect) -> dict[str, Any]:
    return {
        "rounds": _finite(one.rounds),
        "eta_l": None if one.steps is None else one.steps.eta_l,
        "eta_g": None if one.steps is None else one.steps.eta_g,
        "floor": _finite(one.floor),
        "reason": one.reason,
    }
