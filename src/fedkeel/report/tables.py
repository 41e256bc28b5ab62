"""Methods × seeds as a table: final accuracy, what it took to reach a target, and the time.

Nothing heavy is imported here: it reads rows of histories, wherever they come from.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

HistoryRow = Mapping[str, Any]

UNFINISHED = "unfinished"  # the problem of a run that was stopped, or has not begun
HEADINGS = ("method", "final accuracy", "rounds to target", "sent to target", "seconds")


class Trial(NamedTuple):
    """One run of a comparison; `problem` says why it has no last round: it diverged, or is `UNFINISHED`."""

    method: str
    seed: int
    rows: Sequence[HistoryRow]
    problem: str | None = None


class MethodSummary(NamedTuple):
    """A method over its seeds. `model` is which of its models was evaluated: x, FedDyn also gamma.

    `spread` is the standard deviation over seeds (None for one seed); `rounds` and `bytes` are means over
    the `reached` seeds that reached the target; `seconds` is the mean time of a run.
    """

    method: str
    model: str
    seeds: int
    failed: int
    unfinished: int
    accuracy: float | None
    spread: float | None
    reached: int
    rounds: float | None
    bytes: float | None
    seconds: float

    @property
    def label(self) -> str:
        """The method, and the model where it is not x."""
        return self.method if self.model == "x" else f"{self.method} ({self.model})"


def curve(rows: Iterable[HistoryRow], model: str = "x") -> list[tuple[int, float]]:
    """Return (rounds done, accuracy) of every round with an evaluation."""
    column = "accuracy" if model == "x" else f"accuracy/{model}"
    return [(row["round"] + 1, row[column]) for row in rows if row.get(column) is not None]


def final(trial: Trial, model: str = "x") -> float | None:
    """Return the last accuracy of a run; None where it ended early or was never evaluated."""
    points = curve(trial.rows, model)
    return points[-1][1] if points and trial.problem is None else None


def by_method(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Group the runs by method, in the order they come."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.method, []).append(trial)
    return groups


def models_of(trials: Sequence[Trial]) -> list[str]:
    """Return the models that were evaluated in these runs, x first."""
    columns = dict.fromkeys(key for trial in trials for row in trial.rows[-1:] for key in row)
    return ["x", *(key.removeprefix("accuracy/") for key in columns if key.startswith("accuracy/"))]


def reachable_target(trials: Iterable[Trial]) -> float | None:
    """Return the highest whole percentage that every finished run has at its end."""
    ends = [end for trial in trials if (end := final(trial)) is not None]
    lowest = math.floor(min(ends) * 100 + 1e-9) / 100 if ends else 0.0
    return lowest if lowest > 0 else None


def summarise(trials: Sequence[Trial], target: float | None) -> list[MethodSummary]:
    """Return one line for each method and each of its models."""
    return [
        _line(method, group, model, target)
        for method, group in by_method(trials).items()
        for model in models_of(group)
    ]


def _line(method: str, group: Sequence[Trial], model: str, target: float | None) -> MethodSummary:
    ends = [end for trial in group if (end := final(trial, model)) is not None]
    costs = [cost for trial in group if (cost := cost_to(trial.rows, target, model)) is not None]
    return MethodSummary(
        method=method,
        model=model,
        seeds=len(group),
        failed=sum(trial.problem not in (None, UNFINISHED) for trial in group),
        unfinished=sum(trial.problem == UNFINISHED for trial in group),
        accuracy=statistics.fmean(ends) if ends else None,
        spread=statistics.stdev(ends) if len(ends) > 1 else None,
        reached=len(costs),
        rounds=statistics.fmean(rounds for rounds, _ in costs) if costs else None,
        bytes=statistics.fmean(sent for _, sent in costs) if costs else None,
        seconds=statistics.fmean(sum(row.get("seconds") or 0.0 for row in trial.rows) for trial in group),
    )


def cost_to(rows: Iterable[HistoryRow], target: float | None, model: str = "x") -> tuple[int, int] | None:
    """Return the rounds and the bytes, down and up, until the target was first reached."""
    column = "accuracy" if model == "x" else f"accuracy/{model}"
    sent = 0
    for row in rows:
        sent += row["bytes_down"] + row["bytes_up"]
        accuracy = row.get(column)
        if target is not None and accuracy is not None and accuracy >= target:
            return row["round"] + 1, sent
    return None


def cells(line: MethodSummary) -> tuple[str, ...]:
    """Return a line as text, one cell per heading."""
    some = f" ({line.reached} of {line.seeds})" if 0 < line.reached < line.seeds else ""
    return (
        line.label,
        shown_accuracy(line),
        "—" if line.rounds is None else f"{line.rounds:.0f}{some}",
        "—" if line.bytes is None else f"{shown_bytes(line.bytes)}{some}",
        f"{line.seconds:.1f}",
    )


def shown_accuracy(line: MethodSummary) -> str:
    """Return the final accuracy as mean ± standard deviation, and how many runs have none."""
    counts = ((line.failed, "diverged"), (line.unfinished, "unfinished"))
    parts = [f"{count} of {line.seeds} {what}" for count, what in counts if count]
    if line.accuracy is not None:
        spread = "" if line.spread is None else f" ± {100 * line.spread:.1f}"
        parts.insert(0, f"{100 * line.accuracy:.1f}{spread} %")
    return ", ".join(parts) or "—"


def shown_bytes(count: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
