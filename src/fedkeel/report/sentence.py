"""A verdict in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedkeel.report.measures import FINAL, Measure
from fedkeel.report.ranking import Difference, Ranked

MOST_SEEDS = 100  # more are never asked for
_MOST_NAMED = 4  # methods of one kind; of more the first are named, tables and JSON have all
_UNSCORED = "give the data a test set and the task that metric, or set evaluate_on to clients"
_UNPROBED = "ask for the probe that reports it, more often where it left those rounds out"


def write_sentence(
    ranking: Sequence[Ranked], differences: Sequence[Difference], measure: Measure, level: float
) -> str:
    """Say who won, by how much, whether the seeds can tell, and who is not ranked."""
    ranked = [one for one in ranking if one.rank is not None]
    sentences = []
    if ranked:
        first = ranked[0]
        score = measure.shown(first.score or 0.0)
        if measure != FINAL:
            score += f" ({measure.label})"
        sentences.append(_comparison(first.label, score, differences, _Words(measure, level)))
        if differences and any(one.unfinished for one in ranked):
            count = differences[0].seeds
            sentences.append(f"Compared on the {count} seed{'s' * (count != 1)} that all of them finished.")
    sentences += [
        f"{one.label} diverged on {one.diverged} of {one.seeds} seeds and is not ranked."
        for one in ranking
        if one.diverged
    ]
    left = [one for one in ranking if one.rank is None and not one.diverged]
    lost = [one.label for one in left if one.unfinished]
    unscored = [one.label for one in left if not one.unfinished]
    if lost:
        sentences.append(f"{_and(lost)} did not finish.")
    if unscored:
        what = _UNPROBED if measure.is_diagnostic else _UNSCORED
        sentences.append(
            f"{_and(unscored)} {'has' if len(unscored) == 1 else 'have'} no {measure.metric}: {what}."
        )
    if not ranked and len(unscored) < len(ranking):
        sentences.insert(0, "No method finished on every seed, so there is nothing to compare.")
    return " ".join(sentences)


class _Words(NamedTuple):
    """How differences are written: in the units of the measure, with intervals of a level."""

    measure: Measure
    level: float

    def lead(self, d: Difference) -> str:
        return f"{self.measure.shown_lead(d.mean)} {d.other}"

    def gap(self, d: Difference) -> str:
        return f"{self.lead(d)} ({self.interval(d)})"

    def unclear(self, d: Difference) -> str:
        return f"{d.other} ({self.measure.shown_gap(d.mean)}, {self.interval(d)})"

    def interval(self, d: Difference) -> str:
        low, high = (self.measure.shown_bound(end or 0.0) for end in (d.low, d.high))
        return f"{100 * self.level:g} % interval {low} to {high}, {d.seeds} seeds"


def _comparison(winner: str, score: str, differences: Sequence[Difference], words: _Words) -> str:
    if not differences:
        return f"{winner} reached {score}; there is no other method to compare it with."
    if differences[0].low is None:
        gaps = _some([words.lead(d) for d in differences])
        if differences[0].seeds == 0:
            return f"{winner} came first with {score}, {gaps}; no seed was finished by all of them."
        return (
            f"{winner} came first with {score}, {gaps}; with one seed no interval can be given, "
            "so this may be chance: take --seeds 3 or more."
        )
    clear = [d for d in differences if d.resolved]
    unclear = [d for d in differences if not d.resolved]
    together = " The intervals hold for all pairs together." if len(differences) > 1 else ""
    if not unclear:
        return f"{winner} won with {score}: {_some([words.gap(d) for d in clear])}.{together}"
    against = _some([words.unclear(d) for d in unclear])
    text = f"No difference resolved between {winner}, first with {score}, and {against}"
    if clear:
        text += f"; {winner} is {_some([words.gap(d) for d in clear])}"
    return f"{text}.{together} {_needed(winner, unclear)}"


def _needed(winner: str, unclear: Sequence[Difference]) -> str:
    """Say how many seeds would resolve what is not, largest gap first."""
    counts = [
        f"{'more than ' + str(MOST_SEEDS) if d.seeds_needed is None else 'about ' + str(d.seeds_needed)} "
        f"for {d.other}"
        for d in sorted(unclear, key=lambda d: d.seeds_needed or MOST_SEEDS + 1)
    ]
    if len(counts) > _MOST_NAMED:
        counts = [f"from {counts[0]} to {counts[-1]}"]
    return f"Seeds to tell {winner} from them, if gaps and spreads stay as they are: {_and(counts)}."


def _some(parts: Sequence[str]) -> str:
    """Return all parts where they are few, else the first ones and how many others there are."""
    if len(parts) <= _MOST_NAMED:
        return _and(parts)
    return _and([*parts[: _MOST_NAMED - 1], f"{len(parts) - _MOST_NAMED + 1} others"])


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
