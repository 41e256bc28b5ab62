"""What a sweep has come to: a table over its values, and the best of them. Read without PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedkeel.common.columns import is_accuracy
from fedkeel.common.jsonfiles import Shape
from fedkeel.report import Trial, find_verdict, reachable_target, summarise
from fedkeel.report.choosing import choose
from fedkeel.report.measures import FINAL, Measure
from fedkeel.report.table_columns import COLUMNS
from fedkeel.report.tables import by_method, score, why_diverged

SWEEP_FILE = "sweep.json"  # of version 0.1
_RENAMED = {"method": "label", "accuracy": "score"}  # names of a line's parts there


class _SweptRun(Shape):
    value: str
    seed: int
    directory: str
    problem: str | None = None


class SweepShape(Shape):
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


def verdict_of_today(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sweep's verdict by the names of today."""
    ranking = [line_of_today(one) for one in verdict.get("ranking", ())]
    return {**line_of_today(verdict), "ranking": ranking}


def line_of_today(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a sweep's table by the names of today: what 0.1 wrote had others."""
    return {_RENAMED.get(name, name): part for name, part in line.items()}


def _scores(group: Sequence[Trial], measure: Measure) -> list[float]:
    return [found for trial in group if (found := score(trial, measure)) is not None]


def interval(ends: tuple[float, float] | None, measure: Measure) -> str:
    """Return the ends of an interval as the table has them."""
    if ends is None:
        return "—"
    low, high = (f"{'−' * (end < 0)}{measure.shown(abs(end))}" for end in ends)
    return f"{low.removesuffix(' %')} to {high}"


def behind_what(found: Mapping[str, Any], measure: Measure) -> str:
    """Say what the differences are: less is worse, or more."""
    where = "" if found["best_by"] == measure.metric else " in validation"
    return f"{'below' if measure.sign > 0 else 'above'} the best{where}"


def behind(one: Mapping[str, Any], measure: Measure) -> str:
    """Say how far a value is behind the best."""
    gap = measure.shown_gap(one["mean"]).removesuffix(" points")
    if one["low"] is None:
        return gap
    return f"{gap} ({measure.shown_bound(one['low'])} to {measure.shown_bound(one['high'])})"


def how_sure(found: Mapping[str, Any]) -> str:
    """Say which values the seeds cannot tell from the best; with one seed, that they can tell nothing."""
    verdict = found["verdict"]
    if verdict["seeds"] == 1:
        return "; with one seed there is no interval, so this may be chance: take --seeds 3 or more"
    if not verdict["differences"]:
        return ""
    unclear = [one["other"] for one in verdict["differences"] if not one["resolved"]]
    count = f"{verdict['seeds']} seeds"
    if unclear:
        return (
            f"; {count} cannot tell it from {', '.join(unclear)} (the intervals hold for all pairs together)"
        )
    return f"; {count} tell it from all others (the intervals hold for all pairs together)"
