"""Comparisons: methods × seeds, each run in a directory of its own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from fedkeel.common.errors import ConfigError, Diverged, StorageError
from fedkeel.common.jsonfiles import Shape, fitting
from fedkeel.common.tomlfile import read_sealed
from fedkeel.experiments import COMPARISON_FILE
from fedkeel.experiments.experiment import Experiment, ExperimentShape
from fedkeel.experiments.expression import parse_method, spell_method
from fedkeel.experiments.folders import method_folder
from fedkeel.experiments.kept_runs import reported_run
from fedkeel.experiments.planned_run import PlannedRun, changes
from fedkeel.experiments.scoring import check_measures, check_scoring, scoring_of
from fedkeel.report import find_verdict, reachable_target, summarise
from fedkeel.report.measures import Measure, parse_measure
from fedkeel.report.page.document import Table, Text
from fedkeel.report.page.parts import PageParts, listed
from fedkeel.report.table_columns import COLUMNS, column_now, measure_columns, parse_columns
from fedkeel.report.tables import UNFINISHED, MethodSummary, Trial, cells, headings, why_diverged
from fedkeel.report.verdict import verdict_of
from fedkeel.studies.base import Results, Study, Texts, asked

METHODS = 'Method, as scaffold or "relaxed(fedcm, beta=0.1)"; repeatable.'
MEASURE = (
    "What counts: final, last:K (mean of the last K rounds), top, smoothed:K (FedInit's), mean:A:B "
    '(of a part of the run, as 0.5:1); of another column as "final of loss (min)".'
)
TABLE_COLUMNS = (
    "Columns of the table: score (by the measure), any measure, seconds, and rounds_to_target, "
    "bytes_, gradients_ or seconds_to_target."
)


def _read_columns(given: Any) -> Any:
    if given is None:
        return COLUMNS
    names = given.split(";" if ";" in given else ",") if isinstance(given, str) else given
    return tuple(map(column_now, names))


ColumnNames = Annotated[tuple[str, ...], BeforeValidator(_read_columns)]


class ScoredStudy(Study):
    """A study of runs that are scored: `measure` is what they are ranked by, `columns` those of its table."""

    subject: ClassVar[str]  # what its runs are named by

    measure: str = asked("final", MEASURE, metavar="RULE")
    columns: ColumnNames = asked(COLUMNS, TABLE_COLUMNS, metavar="A,B,…", listed=True)

    @property
    def score(self) -> Measure:
        """Return what a run is scored by."""
        return parse_measure(self.measure)

    def so_far(self, out: Path) -> Results:
        """Return runs as far as they are; why one diverged was written down when the study was concluded."""
        numbers = self.read(out) or {"runs": ()}
        problems = {(one[self.subject], one["seed"]): one["problem"] for one in numbers["runs"]}
        found = {}
        for run in self.runs(out):
            trial = run.so_far()  # type: ignore[attr-defined]  # all are planned runs
            known = problems.get((trial.label, trial.seed)) if trial.problem == UNFINISHED else None
            found[run.directory] = trial._replace(problem=known or trial.problem)
        return found

    def with_columns(self, columns: str) -> Self:
        """Return the study with other columns in its table."""
        return self.changed(columns=parse_columns(columns))

    def check_columns(self, results: Results) -> None:
        """Refuse columns that runs on disk do not have."""
        check_columns(self.columns, list(results.values()), self.experiment.rounds)

    def refuse(self, results: Results) -> None:
        """Raise Diverged where runs diverged."""
        problems = [(one, why) for one in results.values() if (why := why_diverged(one)) is not None]
        if problems:
            first, reason = problems[0]
            text = f"{len(problems)} of {len(results)} runs diverged; {first.label}, seed {first.seed}: "
            raise Diverged(text + reason, round=len(first.rows))


class Comparison(ScoredStudy):
    """Methods and seeds, and the experiment that all runs share."""

    kind: ClassVar = "comparison"
    subject: ClassVar = "method"
    command: ClassVar = "compare"
    about: ClassVar = (
        "Compare methods over seeds: a table, a verdict with its confidence interval, a page with curves.\n\n"
        "A seed decides the split, the noise, the first model, the cohorts and the minibatches, and is "
        "shared by all methods. Without --target, the highest accuracy that every run reached serves."
    )
    examples: ClassVar = (
        "fedkeel compare --method fedavg --method scaffold --method feddyn --seeds 5 --target 0.9",
        'fedkeel compare --method fedavg --method "relaxed(scaffold, beta=0.1)" --rounds 100 '
        "--out runs/relaxed",
        "fedkeel compare --method fedavg --method fedcm --columns top,smoothed:50,rounds_to_target "
        "--target 0.8",
        "fedkeel compare experiment.toml --method fedavg --method fedcm --json > table.json",
        "fedkeel compare --method fedavg --method scaffold --on ray --address head:6379 "
        "--out /shared/compare",
    )

    methods: Texts = asked(..., METHODS, flag="--method", metavar="METHOD", many=True)
    folders: Texts = ()  # of the methods: to find them again takes PyTorch

    def checked(self) -> Self:
        """Check the methods, and that the runs have what is measured."""
        measure, columns = scoring_of(self.measure, self.columns, self.experiment)
        methods = distinct_methods(self.methods)
        made = self.changed(methods=methods, measure=measure, columns=columns, folders=folders_of(methods))
        runs = [made.experiment_of(method, 0) for method in made.methods]
        check_scoring(runs, made.measure, made.columns)
        return made

    def runs(self, out: Path) -> list[PlannedRun]:
        """Return the runs, seed after seed."""
        folders = self.folders or folders_of(self.methods)
        return [
            PlannedRun(method, self.experiment_of(method, seed), out / name / f"seed-{seed}")
            for seed in self.all_seeds
            for method, name in zip(self.methods, folders, strict=True)
        ]

    def experiment_of(self, method: str, seed: int) -> Experiment:
        """Return what one run trains; both were checked when the comparison was made."""
        return self.experiment.model_copy(update={"method": method, "seed": seed})

    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return the table, the verdict and the runs."""
        trials = in_order(self.runs(out), results, self.methods)
        folders = {(run.label, run.seed): str(run.directory) for run in self.runs(out)}
        target = self.experiment.target or reachable_target(trials, self.score.metric)
        return {
            "command": self.line(),
            "target": target,
            "columns": list(self.columns),
            "methods": [_line(line) for line in summarise(trials, target, self.score, self.columns)],
            "verdict": find_verdict(trials, self.score).as_dict(),
            "runs": [
                {
                    "method": trial.label,
                    "seed": trial.seed,
                    "directory": folders[trial.label, trial.seed],
                    "rounds": len(trial.rows),
                    "accuracy": trial.rows[-1].get("accuracy") if trial.rows else None,
                    "problem": trial.problem,
                }
                for trial in trials
            ],
        }

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return the runs as far as they have begun, and how they are compared."""
        runs = [run for run in self.runs(out) if (run.directory / "manifest.json").exists()]
        trials = self.so_far(out) if results is None else results
        return PageParts(
            f"{listed(self.methods)} on {self.experiment.data.name}",
            tuple(
                reported_run(run.directory, trials[run.directory])
                for run in sorted(runs, key=lambda run: self.methods.index(run.label))
            ),
            commands=(self.line(), self.line_of_run(self.methods[-1], 0)),
            settings=self.experiment.to_toml(),
            measure=self.measure,
            target=numbers["target"],
            columns=self.columns,
            verdict=verdict_of(numbers["verdict"]),
        )

    def line_of_run(self, method: str, seed: int) -> str:
        """Return the command line that makes one of its runs again."""
        return run_line(self.experiment, method, seed)

    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the table and the verdict."""
        lines = [
            MethodSummary(**{"label" if key == "method" else key: part for key, part in line.items()})
            for line in numbers["methods"]
        ]
        table = Table(
            id="summary",
            title="",
            headings=tuple(headings(numbers["target"], self.score, self.columns)),
            rows=tuple(cells(line, self.columns) for line in lines),
        )
        return table, Text(id="verdict", paragraphs=(numbers["verdict"]["sentence"],))


def _line(line: MethodSummary) -> dict[str, Any]:
    """Return a line for JSON: here its label is always a method."""
    table = line._asdict()
    return {"method": table.pop("label"), **table}


def distinct_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """Return methods as they are spelled; refuse none, and one that is given twice."""
    if not methods:
        raise ConfigError("nothing to compare: name the methods, as in --method fedavg --method scaffold")
    made: dict[str, str] = {}
    for text in methods:
        key = repr(parse_method(text))
        if key in made:
            raise ConfigError(f"{text!r} is given twice (as {made[key]!r}): leave one out")
        made[key] = text
    return tuple(spell_method(text) for text in methods)


def folders_of(methods: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the methods' directories."""
    return tuple(map(method_folder, methods))


def in_order(runs: Sequence[PlannedRun], results: Results, labels: Sequence[str]) -> list[Trial]:
    """Return the results of runs, method by method or value by value."""
    ordered = sorted(runs, key=lambda run: labels.index(run.label))
    return [results[run.directory] for run in ordered]


def check_columns(columns: Sequence[str], trials: Sequence[Trial], rounds: int) -> None:
    """Refuse columns that runs, as they are on disk, do not have."""
    known = {name for trial in trials for row in trial.rows for name in row}
    check_measures(measure_columns(columns), rounds, known, "--columns")


def run_line(experiment: Experiment, method: str, seed: int) -> str:
    """Return the command line that trains a method with an experiment."""
    settings = [one for one in changes(experiment) if not one.startswith(("seed=", "method="))]
    words = [f"--set {shlex.quote(setting)}" for setting in settings]
    return " ".join([f"fedkeel run --method {shlex.quote(method)} --seed {seed}", *words])


class _OldComparison(Shape):
    """What the file of a comparison of version 0.1 holds."""

    methods: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    folders: list[str] | None = None
    measure: str = "final"
    columns: list[str] | None = None
    experiment: ExperimentShape

    @model_validator(mode="after")
    def _has_a_folder_for_each(self) -> _OldComparison:
        if self.folders is not None and len(self.folders) != len(self.methods):
            raise ValueError(f"there are {len(self.methods)} methods and {len(self.folders)} folders")
        return self


def read_old_comparison(directory: Path) -> dict[str, Any]:
    """Return the plan of a comparison of version 0.1."""
    file = directory / COMPARISON_FILE
    try:
        table = fitting(read_sealed(file), _OldComparison)
        parse_measure(table.get("measure", "final"))
        return {**{key: part for key, part in table.items() if key != "format"}, "seeds": len(table["seeds"])}
    except (OSError, ValueError) as problem:
        reason = (problem.strerror if isinstance(problem, OSError) else None) or problem
        raise StorageError(
            f"{file}: cannot be read: {reason}: restore it, or compare anew elsewhere"
        ) from None
