"""What a sweep has come to: a table over its values, and the best of them. Read without PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkeel.common.columns import is_accuracy
from fedkeel.common.jsonfiles import Shape, read_object
from fedkeel.experiments.scoring import check_measures
from fedkeel.report import Trial, find_verdict, parse_measure, reachable_target, summarise
from fedkeel.report.choosing import choose
from fedkeel.report.measures import FINAL, Measure
from fedkeel.report.table_columns import COLUMNS, measure_columns, parse_columns
from fedkeel.report.tables import by_method, score, why_diverged
from fedkeel.running.run_directory import read_rows

SWEEP_FILE = "sweep.json"
_RENAMED = {"method": "label", "accuracy": "score"}  # names of a line's parts in version 0.1


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


def describe(
    over: str,
    trials: Sequence[Trial],
    target: float | None,
    measure: Measure = FINAL,
    columns: Sequence[str] = COLUMNS,
) -> dict[str, Any]:
    """Return a sweep's numbers for people and programs."""
    from fedkeel.report.significance import mean_interval  # noqa: PLC0415  heavy

    target = target or reachable_target(trials, measure.metric)
    lines = [line for line in summarise(trials, target, measure, columns) if line.model == "x"]
    best = choose(trials, measure)
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
        "best": best.value,
        "best_by": best.column,
        "best_score": best.score,
        "best_note": best.note,
        "target": target,
        "table": [{**line._asdict(), "interval": intervals[line.label]} for line in lines],
        "verdict": find_verdict(trials, best.scored).as_dict(),
        "problems": [f"{trial.label}, seed {trial.seed}: {reason}" for trial, reason in diverged],
    }


def read_sweep(directory: Path, columns: str | None = None) -> dict[str, Any]:
    """Return a finished sweep's numbers as they were written; with other columns they are counted again."""
    fix = "run the same `fedkeel sweep` line again to write it anew"
    found = read_object(directory / SWEEP_FILE, fix, _SweepShape)
    found |= {"directory": str(directory), "table": [_as_now(line) for line in found["table"]]}
    if columns is None:
        return found
    asked = parse_columns(columns)
    trials = sweep_trials(directory, found)
    rounds = min(len(trial.rows) for trial in trials)
    known = {name for trial in trials for row in trial.rows for name in row}
    check_measures(measure_columns(asked), rounds, known, "--columns")
    again = describe(found["over"], trials, found["target"], parse_measure(found["measure"]), asked)
    return {**found, **again}


def _as_now(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a sweep's table by the names of today: what 0.1 wrote had others."""
    return {_RENAMED.get(name, name): part for name, part in line.items()}


def sweep_trials(directory: Path, found: Mapping[str, Any]) -> list[Trial]:
    """Return the runs of a sweep that was written, in the order of its values."""
    return [
        Trial(one["value"], one["seed"], read_rows(directory / one["directory"]), one["problem"])
        for one in found["runs"]
    ]


def _scores(group: Sequence[Trial], measure: Measure) -> list[float]:
    return [found for trial in group if (found := score(trial, measure)) is not None]
