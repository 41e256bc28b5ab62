"""Sweeps: one setting over several values and seeds, each run resumable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator

from fedkeel.common.errors import ConfigError
from fedkeel.common.jsonfiles import read_object
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.folders import value_folder
from fedkeel.experiments.kept_runs import reported_run
from fedkeel.experiments.planned_run import PlannedRun
from fedkeel.experiments.scoring import check_scoring, scoring_of
from fedkeel.report import parse_measure
from fedkeel.report.page.document import Table, Text
from fedkeel.report.page.parts import PageParts
from fedkeel.report.page.sweep import sweep_section
from fedkeel.report.table_columns import COLUMNS, SCORE, parse_columns
from fedkeel.report.tables import MethodSummary, Trial, cells, headings
from fedkeel.running.run_directory import read_rows
from fedkeel.studies.base import Results, asked
from fedkeel.studies.comparison import ScoredStudy, in_order
from fedkeel.studies.sweep_report import (
    SWEEP_FILE,
    SweepShape,
    behind,
    behind_what,
    describe,
    how_sure,
    interval,
    line_of_today,
    verdict_of_today,
)

OVER = 'What varies: a setting, as work.lr or "method=FedInit(beta={})"; {} stands for the value.'
VALUES = "Its values, separated by commas (or ; where they hold commas)."


def _read_over(given: Any) -> Any:
    """Read what varies; the option can be repeated, for the sake of `tune`."""
    if isinstance(given, str):
        return given
    if len(given) > 1:
        raise ConfigError(
            f"sweep: --over {', '.join(given)}: a sweep varies one setting; `fedkeel tune` searches several"
        )
    return given[0]


def _read_values(given: Any) -> tuple[str, ...]:
    parts = given.split(";" if ";" in given else ",") if isinstance(given, str) else map(str, given)
    return tuple(part.strip() for part in parts)


class Sweep(ScoredStudy):
    """A setting, its values and the seeds; `over` is a key, or a key and a text with {} for the value.

    `work.epochs` sweeps K, `method=FedInit(beta={})` β, `data.split=DirichletByClass({})` the heterogeneity,
    `cohort` the participation, `method=stages((FedDyn, {}), FedAvg)` the switch. `measure` is what values are
    compared by, `columns` are those of the table.
    """

    kind: ClassVar = "sweep"
    subject: ClassVar = "value"
    command: ClassVar = "sweep"
    about: ClassVar = (
        "Run one setting over several values and seeds, in parallel; a table with intervals and a plot."
    )
    examples: ClassVar = (
        'fedkeel sweep --over "method=FedInit(beta={})" --values=-0.1,0,0.05,0.1 --seeds 3 --rounds 40',
        "fedkeel sweep experiment.toml --over work.epochs --values 1,2,5,10 --parallel 2",
        'fedkeel sweep --over "data.split=DirichletByClass({})" --values 0.05,0.1,0.6 --method scaffold',
        "fedkeel sweep --over cohort --values 5,10,20 --on ray --address head:6379 --out /shared/cohorts",
        'fedkeel sweep --over work.lr --values 0.01,0.1 --probe drift --measure "last:20 of drift (min)"',
    )
    without: ClassVar = ("seed",)

    over: Annotated[str, BeforeValidator(_read_over)] = asked(..., OVER, metavar="KEY[=TEXT]")
    values: Annotated[tuple[str, ...], BeforeValidator(_read_values)] = asked(
        ..., VALUES, metavar="A,B,…", listed=True
    )

    def checked(self) -> Self:
        """Check that every value makes an experiment of its own, and that it has what is measured."""
        key = self.over.partition("=")[0].strip()
        if not any(self.values):
            raise ConfigError("sweep: no values: give them, as in --values 0,0.05,0.1")
        if not key:
            raise ConfigError(f"sweep: --over {self.over!r}: name a setting, as in --over work.lr")
        if key == "seed":
            raise ConfigError(
                "sweep: --over seed: every value is run with the seeds of --seeds; vary another"
            )
        self._check_values()
        measure, columns = scoring_of(self.measure, self.columns, self.experiment)
        runs = [self.experiment_of(value, 0) for value in self.values]
        check_scoring(runs, measure, columns)
        return self.changed(measure=measure, columns=columns)

    def _check_values(self) -> None:
        """Make every experiment; refuse two that are the same."""
        before: dict[str, str] = {}
        for index, value in enumerate(self.values):
            if not value:
                raise ConfigError(f"sweep: value {index + 1} of {len(self.values)} is empty: leave it out")
            same = before.setdefault(self.experiment_of(value, 0).to_toml(), value)
            if same != value or value in self.values[:index]:
                shown = value if same == value else f"{value} (as {same})"
                raise ConfigError(f"sweep: the value {shown} is given twice: leave one out")

    def experiment_of(self, value: str, seed: int) -> Experiment:
        """Return what one run trains."""
        key, equals, text = self.over.partition("=")
        if equals and "{}" not in text:
            example = "method=FedInit({})" if key == "method" else f"{key}={{}}"
            raise ConfigError(f"sweep: {self.over!r}: put {{}} where the value belongs, as in {example}")
        setting = f"{key}={text.replace('{}', value) if equals else value}"
        return self.experiment.with_settings([setting, f"seed={seed}"])

    def runs(self, out: Path) -> list[PlannedRun]:
        """Return the runs, seed after seed."""
        return [
            PlannedRun(value, self.experiment_of(value, seed), out / value_folder(value) / f"seed-{seed}")
            for seed in self.all_seeds
            for value in self.values
        ]

    def shared(self) -> dict[str, Any]:
        """Return what all its runs share; values, seeds and rounds may grow."""
        return {"over": self.over, **super().shared()}

    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return the table, the best value and the runs."""
        runs = self.runs(out)
        trials = in_order(runs, results, self.values)
        problems = {(trial.label, trial.seed): trial.problem for trial in trials}
        return {
            "command": self.line(),
            **describe(self.over, trials, self.experiment.target, self.score, self.columns),
            "settings": self.experiment.to_toml(),
            "runs": [
                {
                    "value": run.label,
                    "seed": run.seed,
                    "directory": str(run.directory.relative_to(out)),
                    "problem": problems[run.label, run.seed],
                }
                for run in sorted(runs, key=lambda run: self.values.index(run.label))
            ],
        }

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return the runs and the plot against the value."""
        known = None if results is None else in_order(self.runs(out), results, self.values)
        return sweep_parts(numbers, out, known)

    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the table with the intervals over seeds, the best value, and how sure that is."""
        return sweep_summary(numbers)


def sweep_trials(directory: Path, numbers: Mapping[str, Any]) -> list[Trial]:
    """Return the runs of a sweep that is concluded, in the order of its values."""
    return [
        Trial(one["value"], one["seed"], read_rows(directory / one["directory"]), one["problem"])
        for one in numbers["runs"]
    ]


def sweep_parts(
    numbers: Mapping[str, Any], directory: Path, known: Sequence[Trial] | None = None
) -> PageParts:
    """Return what the page of a sweep shows; its runs are read where they are not known."""
    trials = sweep_trials(directory, numbers) if known is None else list(known)
    measure = parse_measure(numbers["measure"])
    best = f"Best: {numbers['best'] or 'none'} ({numbers['best_note']})."
    folders = [directory / one["directory"] for one in numbers["runs"]]
    return PageParts(
        f"{numbers['over']}: {', '.join(dict.fromkeys(trial.label for trial in trials))}",
        tuple(reported_run(folder, trial) for folder, trial in zip(folders, trials, strict=True)),
        (sweep_section(numbers["over"], trials, measure, best),),
        (numbers["command"],),
        numbers.get("settings", ""),
        str(measure),
        numbers["target"],
        parse_columns(numbers.get("columns", COLUMNS)),
        numbers["over"],
    )


def sweep_summary(numbers: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the table with the intervals over seeds, the best value, and how sure that is."""
    measure, columns = parse_measure(numbers["measure"]), parse_columns(numbers.get("columns", COLUMNS))
    at = columns.index(SCORE) + 2 if SCORE in columns else None  # the intervals stand behind the score
    names = [numbers["over"], *headings(numbers["target"], measure, columns)[1:]]
    below = {one["other"]: behind(one, measure) for one in numbers["verdict"]["differences"]}
    rows = []
    for line in numbers["table"]:
        summary = MethodSummary(**{key: part for key, part in line.items() if key != "interval"})
        row = list(cells(summary, columns))
        if at is not None:
            row[at:at] = [interval(line["interval"], measure), below.get(line["label"], "—")]
        rows.append(tuple(row))
    if at is not None:
        names[at:at] = ["95 % interval", f"{behind_what(numbers, measure)} (interval)"]
    best = f"{numbers['best'] or 'none'} ({numbers['best_note']})"
    return (
        Table(id="summary", title="", headings=tuple(names), rows=tuple(rows)),
        Text(id="best", paragraphs=(f"Best: {best}{how_sure(numbers)}", *numbers["problems"])),
    )


def read_old_sweep(directory: Path) -> dict[str, Any]:
    """Return the numbers of a sweep of version 0.1."""
    fix = "run the same `fedkeel sweep` line again to write it anew"
    found = read_object(directory / SWEEP_FILE, fix, SweepShape)
    table = [line_of_today(line) for line in found["table"]]
    return {**found, "table": table, "verdict": verdict_of_today(found["verdict"])}


def with_other_columns(numbers: Mapping[str, Any], trials: Sequence[Trial], columns: Sequence[str]) -> Any:
    """Return a sweep's numbers with other columns."""
    measure = parse_measure(numbers["measure"])
    return {**numbers, **describe(numbers["over"], trials, numbers["target"], measure, columns)}
