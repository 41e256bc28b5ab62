"""Medians of paired ratios with bootstrap intervals, and what may be said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FEW = 15  # fewer pairs than this resolve no few per cent
_LEAST, _SMALL = 5, 0.1  # the same for ratios further from their target than this
_RESAMPLES = 4000


class Ratio(NamedTuple):
    """The median of paired ratios and its 95 % interval."""

    median: float
    low: float
    high: float
    pairs: int

    @property
    def resolved(self) -> bool:
        """Tell whether the two differ beyond the noise."""
        return not self.low <= 1.0 <= self.high

    def text(self) -> str:
        """Return the ratio as the tables print it."""
        note = "" if self.resolved else ", not resolved"
        return f"{self.median:.3g} ({self.low:.3g}–{self.high:.3g}{note}; n={self.pairs})"


def ratio(above: Sequence[float | None], below: Sequence[float | None], seed: int = 0) -> Ratio | None:
    """Compare two columns of interleaved turns; rows where one did not take part are left out."""
    pairs = [a / b for a, b in zip(above, below, strict=True) if a is not None and b is not None]
    if not pairs:
        return None
    values = np.array(pairs)
    draws = np.random.default_rng(seed).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[draws], axis=1), [0.025, 0.975])
    return Ratio(float(np.median(values)), float(low), float(high), len(values))


def verdict(found: Ratio | None, target: float, *, at_least: bool) -> str:
    """Judge a figure to reach: by the whole interval, else by the median with a warning."""
    if found is None:
        return "not measured"
    if found.pairs < (FEW if abs(found.median / target - 1.0) < _SMALL else _LEAST):
        return f"not resolved (only {found.pairs} pairs)"
    low, high, middle = (
        (found.low, found.high, found.median) if at_least else (-found.high, -found.low, -found.median)
    )
    goal = target if at_least else -target
    if low >= goal:
        return "reached"
    if high < goal:
        return "not reached"
    side = "reached" if middle >= goal else "not reached"
    return f"not resolved (the median says {side})"


def median(values: Sequence[float | None]) -> float:
    """Return the median of what there is."""
    return float(np.median([value for value in values if value is not None]))
