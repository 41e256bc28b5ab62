"""Who won, by how much, and whether the seeds can tell: Student's t on paired differences."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from fedkeel.report.tables import Trial, by_method, final


class Difference(NamedTuple):
    """How far the winner is ahead of another method, paired by seed; no interval from one seed."""

    other: str
    mean: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def resolved(self) -> bool:
        """Whether the interval lies above zero."""
        return self.low is not None and self.low > 0


class ComparisonVerdict(NamedTuple):
    """A sentence, and the numbers it was made of. The winner has the highest mean final accuracy."""

    sentence: str
    winner: str | None
    accuracy: float | None
    differences: list[Difference]
    level: float


def find_verdict(trials: Sequence[Trial], level: float = 0.95) -> ComparisonVerdict:
    """Compare the final accuracies of the best method with those of every other one.

    Each interval is for its pair alone; it is not widened for the number of methods compared.
    """
    ends = {
        method: {trial.seed: end for trial in group if (end := final(trial)) is not None}
        for method, group in by_method(trials).items()
    }
    ranked = sorted((m for m in ends if ends[m]), key=lambda m: -statistics.fmean(ends[m].values()))
    if not ranked:
        return ComparisonVerdict("No method finished, so there is nothing to compare.", None, None, [], level)
    winner = ranked[0]
    accuracy = statistics.fmean(ends[winner].values())
    differences = [_difference(other, ends[winner], ends[other], level) for other in ranked[1:]]
    sentence = _sentence(winner, accuracy, differences, level)
    lost = [method for method in ends if not ends[method]]
    if lost:
        sentence += f" {_and(lost)} did not finish."
    return ComparisonVerdict(sentence, winner, accuracy, differences, level)


def paired_interval(differences: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Return Student's t interval of the mean of paired differences; None for fewer than two."""
    count = len(differences)
    if count < 2:
        return None
    mean = statistics.fmean(differences)
    half = student_quantile((1 + level) / 2, count - 1) * statistics.stdev(differences) / math.sqrt(count)
    return mean - half, mean + half


def student_quantile(p: float, freedom: int) -> float:
    """Return the p-quantile of Student's t."""
    from scipy.special import stdtrit  # noqa: PLC0415  heavy

    return float(stdtrit(freedom, p))


def _difference(other: str, ours: dict[int, float], theirs: dict[int, float], level: float) -> Difference:
    paired = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if not paired:
        gap = statistics.fmean(ours.values()) - statistics.fmean(theirs.values())
        return Difference(other, gap, None, None, 0)
    low, high = paired_interval(paired, level) or (None, None)
    return Difference(other, statistics.fmean(paired), low, high, len(paired))


def _sentence(winner: str, accuracy: float, differences: list[Difference], level: float) -> str:
    score = f"{100 * accuracy:.1f} %"
    if not differences:
        return f"{winner} reached {score}; there is no other method to compare it with."
    if all(difference.low is None for difference in differences):
        gaps = _and([f"{_points(d.mean)} above {d.other}" for d in differences])
        return (
            f"{winner} came first with {score}, {gaps}; with one seed no interval can be given, "
            "so this may be chance: take --seeds 3 or more."
        )
    clear = [d for d in differences if d.resolved]
    unclear = [d for d in differences if not d.resolved]
    if not unclear:
        return f"{winner} won with {score}: {_and([_gap(d, level) for d in clear])}."
    against = _and([f"{d.other} ({_gap_only(d, level)})" for d in unclear])
    text = f"No difference resolved between {winner}, first with {score}, and {against}"
    if clear:
        text += f"; {winner} is {_and([_gap(d, level) for d in clear])}"
    return f"{text}. More seeds narrow the intervals."


def _gap(d: Difference, level: float) -> str:
    return f"{_points(d.mean)} above {d.other} ({_interval(d, level)})"


def _gap_only(d: Difference, level: float) -> str:
    return f"{_points(d.mean)}, {_interval(d, level)}"


def _interval(d: Difference, level: float) -> str:
    if d.low is None or d.high is None:
        return "no interval from one seed"
    low, high = (_bound(100 * end) for end in (d.low, d.high))
    return f"{100 * level:g} % interval {low} to {high}, {d.seeds} seeds"


def _bound(points: float) -> str:
    """Return an end of an interval, finer near zero, where its sign decides."""
    return f"{points:.{1 if abs(points) >= 0.1 else 2}f}".replace("-", "−")


def _points(gap: float) -> str:
    return f"{100 * gap:.1f} points"


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
