"""The robustness study: methods × reducers × attacks × seeds, each a run of its own, all resumable."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar, NamedTuple, Self

from fedkeel.common.columns import ATTACK_SUCCESS
from fedkeel.common.errors import ConfigError
from fedkeel.common.references import add_references
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.expression import parse_attack, parse_reducer
from fedkeel.experiments.folders import value_folder
from fedkeel.experiments.planned_run import SPEED_ONLY, PlannedRun
from fedkeel.experiments.scoring import check_scoring, scoring_of
from fedkeel.experiments.sections import check_text
from fedkeel.report.measures import Measure, parse_measure
from fedkeel.report.page.document import Table, Text
from fedkeel.report.page.parts import PageParts
from fedkeel.report.table_columns import SCORE
from fedkeel.report.tables import Trial, score
from fedkeel.studies.base import Results, Study, Texts, asked
from fedkeel.studies.comparison import MEASURE, METHODS, distinct_methods
from fedkeel.studies.measured import study_parts
from fedkeel.studies.robustness_page import (
    robustness_grids,
    robustness_section,
    robustness_text,
    robustness_verdict,
)

REDUCERS = (
    "Mean",
    "Median",
    "TrimmedMean(0.3)",
    "NormClip",
    "Krum(0.3)",
    "MultiKrum(0.3)",
    "GeometricMedian",
)
ATTACKS = (
    "SignFlip(0.2, scale=5)",
    "RandomNoise(0.2)",
    "LabelFlip(0.2)",
    "Scaling(0.2, factor=100)",
    "Backdoor(0.2)",
    "Collusion(0.2)",
)
CLEAN = "none"
OPEN = 0.2  # the part of triggered samples for which a backdoor opens that counts as open


class Combination(NamedTuple):
    """What a run is of: a method, a reducer, and an attack, or `CLEAN`."""

    method: str
    reducer: str
    attack: str

    def __str__(self) -> str:
        return f"{self.method}, {self.reducer}, {self.attack}"


class RobustnessStudy(Study):
    """Methods, reducers and attacks, seeds, and the experiment that all runs share.

    Every method is also run without attack, and with the mean.
    """

    kind: ClassVar = "robustness study"
    command: ClassVar = "study robustness"
    about: ClassVar = (
        "Scores with and without hostile clients, per method and reducer: who holds out against what."
    )
    examples: ClassVar = (
        "fedkeel study robustness --method fedavg --method scaffold --rounds 30 --cohort 20 "
        "--out runs/hostile",
        'fedkeel study robustness --method scaffold --reducer median --reducer "krum(0.3)" '
        '--attack "SignFlip(0.2)"',
    )
    without: ClassVar = ("method", "seed", "reducer", "attack")

    methods: Texts = asked(..., METHODS, flag="--method", metavar="METHOD", many=True)
    reducers: Texts = asked(
        REDUCERS,
        'Reducer beside the mean, as "TrimmedMean(0.2)"; repeatable. By default all.',
        flag="--reducer",
        many=True,
    )
    attacks: Texts = asked(
        ATTACKS,
        'Attack, as "SignFlip(share=0.2)"; repeatable. By default all, with 20 %.',
        flag="--attack",
        many=True,
    )
    measure: str = asked("final", MEASURE, metavar="RULE")

    def checked(self) -> Self:
        """Check what is combined, and that every combination makes a run."""
        base = self.experiment
        if base.attack is not None or base.reducer is not None:
            key = "attack" if base.attack is not None else "reducer"
            raise ConfigError(
                f"study robustness: the experiment has {key} = {getattr(base, key)!r}: name what is compared "
                f"with --{key}"
            )
        methods = distinct_methods(self.methods)
        measure, columns = scoring_of(self.measure, (SCORE,), base)
        runs = [base.model_copy(update={"method": one}) for one in methods]
        check_scoring(runs, measure, columns)
        hostile = _distinct("attack", parse_attack, self.attacks)
        if not hostile:
            raise ConfigError("study robustness: no attack: name one, as in --attack 'SignFlip(0.2)'")
        rules = _distinct("reducer", parse_reducer, ["Mean", *self.reducers])
        return self.changed(methods=methods, reducers=rules, attacks=hostile, measure=measure)

    @property
    def score(self) -> Measure:
        """Return what a run is scored by."""
        return parse_measure(self.measure)

    @property
    def combinations(self) -> list[Combination]:
        """Return all combinations, those without attack first."""
        return [
            Combination(method, reducer, attack)
            for attack in (CLEAN, *self.attacks)
            for method in self.methods
            for reducer in self.reducers
        ]

    def experiment_of(self, which: Combination, seed: int) -> Experiment:
        """Return what one run trains."""
        return self.experiment.model_copy(
            update={
                "method": which.method,
                "reducer": repr(parse_reducer(which.reducer)),
                "attack": None if which.attack == CLEAN else repr(parse_attack(which.attack)),
                "seed": seed,
            }
        )

    def runs(self, out: Path) -> list[PlannedRun]:
        """Return the runs, seed after seed."""
        return [self._run(out, which, seed) for seed in self.all_seeds for which in self.combinations]

    def _run(self, out: Path, which: Combination, seed: int) -> PlannedRun:
        made = self.experiment_of(which, seed)
        names = (made.attack or CLEAN, str(made.reducer), made.method)
        return PlannedRun(str(which), made, out.joinpath(*map(value_folder, names), f"seed-{seed}"))

    def shared(self) -> dict[str, Any]:
        """Return what all its runs share; what is combined, seeds and rounds may grow."""
        free = {*SPEED_ONLY, "seed", "method"}
        return {key: part for key, part in self.experiment.table().items() if key not in free}

    def by_combination(self, results: Results, out: Path) -> dict[Combination, list[Trial]]:
        """Return the runs of each combination, seed by seed."""
        trials = [results[run.directory] for run in self.runs(out)]
        count = len(self.combinations)
        return {which: trials[index::count] for index, which in enumerate(self.combinations)}

    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return what came out."""
        return robustness_findings(self, self.by_combination(results, out))

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return its charts and tables."""
        title = f"Robustness of {', '.join(numbers['clean'])}"
        return study_parts(title, robustness_verdict(numbers), [robustness_section(numbers)], out)

    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a grid for each method, and what holds out."""
        grids = robustness_grids(numbers)
        return (
            *(
                Table(id=f"grid-{index}", title=method, headings=headings, rows=tuple(rows))
                for index, (method, (headings, rows)) in enumerate(grids.items())
            ),
            Text(id="held", paragraphs=tuple(robustness_text(numbers))),
        )

    def refuse(self, results: Results) -> None:
        """Raise nothing: a run that diverges under an attack is what the study is about."""


def robustness_findings(
    study: RobustnessStudy, trials: Mapping[Combination, Sequence[Trial]], *, margin: float = 0.05
) -> dict[str, Any]:
    """Return what came out, as plain values: a line per combination, and what holds out against what.

    A combination holds out where no run diverged, its mean score is at most `margin` worse than that of the
    same method with the mean and without attack, and a backdoor opens for less than a fifth of the samples.
    Of a score that is no share in per cent `margin` is a part of the score without attack.
    """
    clean = {
        method: _mean(
            score(trial, study.score) for trial in trials[Combination(method, study.reducers[0], CLEAN)]
        )
        for method in study.methods
    }
    lines = [_line(study, which, trials[which], clean[which.method], margin) for which in study.combinations]
    return {
        "measure": study.score.label,
        "rule": study.measure,
        "margin": margin,
        "seeds": list(study.all_seeds),
        "clean": clean,
        "lines": lines,
        "held_by": {attack: _held(lines, attack, study.methods) for attack in study.attacks},
    }


def _line(
    study: RobustnessStudy,
    which: Combination,
    trials: Sequence[Trial],
    clean: float | None,
    margin: float,
) -> dict[str, Any]:
    scores = [score(trial, study.score) for trial in trials]
    known = [one for one in scores if one is not None]
    mean = _mean(scores)
    success = _mean(trial.rows[-1].get(ATTACK_SUCCESS) if trial.rows else None for trial in trials)
    held = False
    if mean is not None and clean is not None and len(known) == len(scores):
        allowed = margin if study.score.percent else margin * abs(clean)
        held = study.score.sign * (mean - clean) >= -allowed
    return {
        **which._asdict(),
        "scores": scores,
        "mean": mean,
        "deviation": stdev(known) if len(known) > 1 else None,
        "success": success,
        "diverged": len(scores) - len(known),
        "holds": held and (success is None or success < OPEN),
    }


def _held(lines: Sequence[Mapping[str, Any]], attack: str, methods: Sequence[str]) -> dict[str, list[str]]:
    """Return the reducers with which each method holds out against an attack."""
    held = [line for line in lines if line["attack"] == attack and line["holds"]]
    return {method: [line["reducer"] for line in held if line["method"] == method] for method in methods}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return fmean(known) if known else None


def _distinct(kind: str, parse: Callable[[str], Any], texts: Sequence[str]) -> tuple[str, ...]:
    """Check expressions; return each value once, as it was written first."""
    made: dict[str, str] = {}
    for text in texts:
        made.setdefault(repr(check_text(f"--{kind}", parse, text)), text)
    return tuple(made.values())


add_references("studies", sys.modules[__name__])
