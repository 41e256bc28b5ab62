"""What a sweep has come to: a table over its values, the best of them, a plot. Read without PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.columns import is_accuracy
from fedkeel.experiments.scoring import check_measures
from fedkeel.jsonfiles import Shape, read_object
from fedkeel.report import MethodSummary, Trial, find_verdict, parse_measure, reachable_target, summarise
from fedkeel.report.charts import line_chart
from fedkeel.report.choosing import ChosenValue, choose
from fedkeel.report.measures import FINAL, Measure
from fedkeel.report.table_columns import COLUMNS, measure_columns, parse_columns
from fedkeel.report.tables import by_method, score, why_diverged
from fedkeel.running.run_directory import read_rows

SWEEP_FILE = "sweep.json"


class _SweptRun(Shape):
    value: str
    seed: int
    directory: str
    problem: str | None = None


class _SweepShape(Shape):
    """What the file of a sweep must hold."""

    over: str
    measure: str
    best: str | None
    target: float | None
    table: list[dict[str, Any]]
    verdict: dict[str, Any]
    runs: list[_SweptRun]


class SweepOutcome(NamedTuple):
    """A sweep's table, the plot, and the best value: by validation data where there is some."""

    lines: list[MethodSummary]
    best: ChosenValue
    plot: str


def conclude(
    over: str,
    trials: Sequence[Trial],
    target: float | None,
    measure: Measure = FINAL,
    columns: Sequence[str] = COLUMNS,
) -> SweepOutcome:
    """Return the table over values, the best of them and a plot of the score against the value."""
    target = target or reachable_target(trials, measure.metric)
    lines = [line for line in summarise(trials, target, measure, columns) if line.model == "x"]
    return SweepOutcome(lines, choose(trials, measure), _plot(over, trials, lines, measure))


def describe(
    over: str,
    trials: Sequence[Trial],
    target: float | None,
    measure: Measure = FINAL,
    columns: Sequence[str] = COLUMNS,
) -> dict[str, Any]:
    """Return a sweep's numbers for people and programs."""
    from fedkeel.report.significance import mean_interval  # noqa: PLC0415  heavy

    outcome = conclude(over, trials, target, measure, columns)
    within = (0.0, 1.0) if is_accuracy(measure.metric) else (-math.inf, math.inf)
    intervals = {
        value: mean_interval(_scores(group, measure), within=within)
        for value, group in by_method(trials).items()
    }
    diverged = [(trial, reason) for trial in trials if (reason := why_diverged(trial)) is not None]
    return {
        "over": over,
        "measure": str(measure),
        "columns": list(columns),
        "best": outcome.best.value,
        "best_by": outcome.best.column,
        "best_score": outcome.best.score,
        "best_note": outcome.best.note,
        "target": target or reachable_target(trials, measure.metric),
        "table": [{**line._asdict(), "interval": intervals[line.method]} for line in outcome.lines],
        "verdict": find_verdict(trials, outcome.best.scored).as_dict(),
        "problems": [f"{trial.method}, seed {trial.seed}: {reason}" for trial, reason in diverged],
    }


def read_sweep(directory: Path, columns: str | None = None) -> dict[str, Any]:
    """Return a finished sweep's numbers as they were written; with other columns they are counted again."""
    fix = "run the same `fedkeel sweep` line again to write it anew"
    found = read_object(directory / SWEEP_FILE, fix, _SweepShape)
    found["directory"] = str(directory)
    if columns is None:
        return found
    asked = parse_columns(columns)
    trials = [_read_trial(directory, one) for one in found["runs"]]
    rounds = min(len(trial.rows) for trial in trials)
    known = {name for trial in trials for row in trial.rows for name in row}
    check_measures(measure_columns(asked), rounds, known, "--columns")
    again = describe(found["over"], trials, found["target"], parse_measure(found["measure"]), asked)
    return {**found, **again}


def _read_trial(directory: Path, one: Mapping[str, Any]) -> Trial:
    return Trial(one["value"], one["seed"], read_rows(directory / one["directory"]), one["problem"])


def _plot(over: str, trials: Sequence[Trial], lines: Sequence[MethodSummary], measure: Measure) -> str:
    """Return a picture of the score against the value: the mean, and every seed where there are several."""
    positions = {value: _number(value, index) for index, value in enumerate(by_method(trials))}
    factor, unit = (100, ", %") if is_accuracy(measure.metric) else (1, "")
    means = [(positions[line.method], line.accuracy) for line in lines]
    series = {"mean": _drawn(means, factor)}
    seeds = list(dict.fromkeys(trial.seed for trial in trials))
    if len(seeds) > 1:
        for seed in seeds:
            ends = [(positions[t.method], score(t, measure)) for t in trials if t.seed == seed]
            series[f"seed {seed}"] = _drawn(ends, factor)
    return line_chart(f"{measure.label}{unit} against {over}", series, x=over).file()


def _drawn(points: Sequence[tuple[float, float | None]], factor: float) -> list[tuple[float, float]]:
    return sorted((a, factor * b) for a, b in points if b is not None)


def _scores(group: Sequence[Trial], measure: Measure) -> list[float]:
    return [found for trial in group if (found := score(trial, measure)) is not None]


def _number(value: str, index: int) -> float:
    """Return where a value stands on the axis: itself where it is a number, else its index in the list."""
    try:
        return float(value)
    except ValueError:
        return float(index)
