"""Methods × seeds as a table: accuracies by a chosen measure, what it took to reach a target, and the time.

Nothing heavy is imported here: it reads rows of histories, wherever they come from.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedkeel.report.explosion import find_explosion
from fedkeel.report.measures import FINAL, Measure, parse_measure

HistoryRow = Mapping[str, Any]

UNFINISHED = "unfinished"  # the problem of a run that was stopped, or has not begun
COLUMNS = ("accuracy", "rounds_to_target", "bytes_to_target", "seconds")
_HEADINGS = {
    "rounds_to_target": "rounds to target",
    "bytes_to_target": "sent to target",
    "seconds_to_target": "seconds to target",
    "seconds": "seconds",
}

_SELECTED_ON = {"test": "on the test set", "validation": "on validation data", "clients": "on all their data"}


class Trial(NamedTuple):
    """One run of a comparison; `problem` says why it has no last round: it diverged, or is `UNFINISHED`."""

    method: str
    seed: int
    rows: Sequence[HistoryRow]
    problem: str | None = None


class TargetCost(NamedTuple):
    """What a run took to reach a target: rounds, bytes down and up, seconds."""

    rounds: int
    bytes: int
    seconds: float


class MethodSummary(NamedTuple):
    """A method over its seeds. `model` is which of its models was evaluated: x, FedDyn also gamma.

    `accuracy` is the mean of the chosen `measure` (which may be of another metric) over the seeds that
    finished, `spread` their standard deviation (None for one seed); `others` has mean and spread of the
    further measures that were asked for. `failed` counts the seeds that diverged. `rounds`, `bytes` and
    `seconds_to_target` are means over the `reached` seeds that reached the target; `seconds` is the mean time
    of a run.
    """

    method: str
    model: str
    seeds: int
    failed: int
    unfinished: int
    measure: str
    accuracy: float | None
    spread: float | None
    others: dict[str, tuple[float | None, float | None]]
    reached: int
    rounds: float | None
    bytes: float | None
    seconds_to_target: float | None
    seconds: float

    @property
    def label(self) -> str:
        """The method, and the model where it is not x."""
        return self.method if self.model == "x" else f"{self.method} ({self.model})"


def curve(rows: Iterable[HistoryRow], model: str = "x", metric: str = "accuracy") -> list[tuple[int, float]]:
    """Return (rounds done, accuracy) of every round with an evaluation."""
    column = metric if model == "x" else f"{metric}/{model}"
    return [(row["round"] + 1, row[column]) for row in rows if row.get(column) is not None]


def best_round(rows: Sequence[HistoryRow], told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the best round, from 1 on, with its accuracy and what it was selected on.

    `told` is what a run says of it when it ends; a run that has not ended is looked through, on its test set.
    """
    if told is not None:
        accuracy = rows[told["round"]].get("accuracy")
        on = told.get("selected_on")
        return {"round": told["round"] + 1, "accuracy": accuracy, "column": told["column"], "selected_on": on}
    found = max(curve(rows), key=lambda point: point[1], default=None)
    plain = {"column": "accuracy", "selected_on": "test"}
    return None if found is None else {"round": found[0], "accuracy": found[1], **plain}


def shown_best(best: Mapping[str, Any]) -> str:
    """Return the best round as text, with what it was selected on."""
    accuracy = "" if best["accuracy"] is None else f" {100 * best['accuracy']:.1f} %"
    chosen = _SELECTED_ON.get(best["selected_on"], f"by {best['column']}")
    return f"best{accuracy} after round {best['round']} (selected {chosen})"


def why_diverged(trial: Trial) -> str | None:
    """Return why a run counts as diverged: it was stopped for it, or its loss or norm has exploded."""
    stopped = trial.problem not in (None, UNFINISHED)
    return trial.problem if stopped else find_explosion(trial.rows)


def is_unfinished(trial: Trial) -> bool:
    """Tell whether a run has rounds left to play that are worth it."""
    return trial.problem == UNFINISHED and why_diverged(trial) is None


def score(trial: Trial, measure: Measure = FINAL, model: str = "x", prefix: str = "") -> float | None:
    """Return a run's score; None where it diverged, ended early or was never evaluated.

    `prefix` begins the column's name, as in `validation_accuracy`.
    """
    points = curve(trial.rows, model, f"{prefix}{measure.metric}")
    usable = points and trial.problem is None and why_diverged(trial) is None
    return measure.score(points) if usable else None


def final(trial: Trial, model: str = "x") -> float | None:
    """Return the last accuracy of a run; None where it diverged, ended early or was never evaluated."""
    return score(trial, FINAL, model)


def by_method(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Group the runs by method, in the order they come."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.method, []).append(trial)
    return groups


def models_of(trials: Sequence[Trial], metric: str = "accuracy") -> list[str]:
    """Return the models that were evaluated in these runs, x first."""
    columns = dict.fromkeys(key for trial in trials for row in trial.rows[-1:] for key in row)
    return ["x", *(key.removeprefix(f"{metric}/") for key in columns if key.startswith(f"{metric}/"))]


def reachable_target(trials: Iterable[Trial], metric: str = "accuracy") -> float | None:
    """Return the highest whole percentage that every finished run has at its end; None but for accuracies."""
    if metric != "accuracy":
        return None
    ends = [end for trial in trials if (end := final(trial)) is not None]
    lowest = math.floor(min(ends) * 100 + 1e-9) / 100 if ends else 0.0
    return lowest if lowest > 0 else None


def summarise(
    trials: Sequence[Trial],
    target: float | None,
    measure: Measure = FINAL,
    columns: Sequence[str] = COLUMNS,
) -> list[MethodSummary]:
    """Return one line for each method and each of its models.

    `measure` is what `accuracy` means; `columns` may name further measures, as `top` or `smoothed:50`.
    """
    return [
        _line(group, model, target, measure, columns)
        for group in by_method(trials).values()
        for model in models_of(group, measure.metric)
    ]


def _line(
    group: Sequence[Trial], model: str, target: float | None, measure: Measure, columns: Sequence[str]
) -> MethodSummary:
    reasons = [why_diverged(trial) for trial in group]
    costs = [
        cost
        for trial, reason in zip(group, reasons, strict=True)
        if reason is None and (cost := cost_to(trial.rows, target, model, measure)) is not None
    ]
    accuracy, spread = _mean_and_spread(group, measure, model)
    return MethodSummary(
        method=group[0].method,
        model=model,
        seeds=len(group),
        failed=sum(reason is not None for reason in reasons),
        unfinished=sum(map(is_unfinished, group)),
        measure=str(measure),
        accuracy=accuracy,
        spread=spread,
        others={name: _mean_and_spread(group, parse_measure(name), model) for name in _measures(columns)},
        reached=len(costs),
        rounds=statistics.fmean(cost.rounds for cost in costs) if costs else None,
        bytes=statistics.fmean(cost.bytes for cost in costs) if costs else None,
        seconds_to_target=statistics.fmean(cost.seconds for cost in costs) if costs else None,
        seconds=statistics.fmean(sum(row.get("seconds") or 0.0 for row in trial.rows) for trial in group),
    )


def _measures(columns: Sequence[str]) -> list[str]:
    return [name for name in columns if name != "accuracy" and name not in _HEADINGS]


def _mean_and_spread(
    group: Sequence[Trial], measure: Measure, model: str
) -> tuple[float | None, float | None]:
    scores = [value for trial in group if (value := score(trial, measure, model)) is not None]
    mean = statistics.fmean(scores) if scores else None
    return mean, statistics.stdev(scores) if len(scores) > 1 else None


def cost_to(
    rows: Iterable[HistoryRow], target: float | None, model: str = "x", measure: Measure = FINAL
) -> TargetCost | None:
    """Return the rounds, the bytes down and up, and the seconds until the target was first reached."""
    column, sign = measure.metric if model == "x" else f"{measure.metric}/{model}", measure.sign
    sent, seconds = 0, 0.0
    for row in rows:
        sent += row["bytes_down"] + row["bytes_up"]
        seconds += row.get("seconds") or 0.0
        value = row.get(column)
        if target is not None and value is not None and sign * value >= sign * target:
            return TargetCost(row["round"] + 1, sent, seconds)
    return None


def headings(target: float | None, measure: Measure = FINAL, columns: Sequence[str] = COLUMNS) -> list[str]:
    """Return the table's headings with the measure and the target in them."""
    shown = "target" if target is None else _shown_target(target, measure)
    names = {"accuracy": measure.label, **_HEADINGS}
    labels = [names[name] if name in names else parse_measure(name).label for name in columns]
    return ["method", *(label.replace("target", shown) for label in labels)]


def _shown_target(target: float, measure: Measure) -> str:
    return f"{100 * target:g} %" if measure.metric == "accuracy" else f"{measure.metric} {target:g}"


def cells(line: MethodSummary, columns: Sequence[str] = COLUMNS) -> tuple[str, ...]:
    """Return a line as text, one cell per heading."""
    some = f" ({line.reached} of {line.seeds})" if 0 < line.reached < line.seeds else ""
    texts = {
        "accuracy": shown_accuracy(line),
        "rounds_to_target": "—" if line.rounds is None else f"{line.rounds:.0f}{some}",
        "bytes_to_target": "—" if line.bytes is None else f"{shown_bytes(line.bytes)}{some}",
        "seconds_to_target": "—" if line.seconds_to_target is None else f"{line.seconds_to_target:.1f}{some}",
        "seconds": f"{line.seconds:.1f}",
    }
    texts |= {
        name: _shown_score(*line.others[name], parse_measure(name)) or "—" for name in _measures(columns)
    }
    return (line.label, *(texts[name] for name in columns))


def shown_accuracy(line: MethodSummary) -> str:
    """Return the accuracy as mean ± standard deviation, and how many runs have none."""
    counts = ((line.failed, "diverged"), (line.unfinished, "unfinished"))
    parts = [f"{count} of {line.seeds} {what}" for count, what in counts if count]
    mean = _shown_score(line.accuracy, line.spread, parse_measure(line.measure))
    return ", ".join([mean, *parts] if mean else parts) or "—"


def _shown_score(mean: float | None, spread: float | None, measure: Measure) -> str:
    return "" if mean is None else measure.shown(mean, spread)


def shown_bytes(count: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
