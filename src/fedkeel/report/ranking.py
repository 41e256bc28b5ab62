"""What a verdict is made of: ranked methods and the winner's leads."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """How far the winner is ahead of another method, paired by seed; no interval from one seed.

    The intervals of all pairs hold together, and `p` is adjusted for all pairs. Where nothing is resolved,
    `seeds_needed` says how many seeds would be, if gap and spread stay as they are; None for more than 100.
    """

    other: str
    mean: float
    low: float | None
    high: float | None
    p: float | None
    seeds: int
    seeds_needed: int | None

    @property
    def resolved(self) -> bool:
        """Whether the interval lies above zero."""
        return self.low is not None and self.low > 0


class Ranked(NamedTuple):
    """A method or value, its rank and mean score; no rank where a seed diverged or none finished."""

    label: str
    rank: int | None
    score: float | None
    seeds: int
    diverged: int
    unfinished: int
