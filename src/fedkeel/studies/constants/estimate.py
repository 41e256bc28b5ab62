"""A measured constant: its value, how far it spreads, how many samples are behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple


class Estimate(NamedTuple):
    """`value` with what it varies between (`low` to `high`), over `samples` measurements; `how` in words."""

    value: float
    low: float
    high: float
    samples: int
    how: str

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, which has no infinity: null stands for it."""
        return {
            key: None if isinstance(part, float) and not math.isfinite(part) else part
            for key, part in self._asdict().items()
        }


def largest(groups: Sequence[Sequence[float]], how: str) -> Estimate:
    """Return the largest of all values; the spread is that of each group's own largest."""
    tops = [max(group) for group in groups if group]
    return _extreme(max(tops), tops, groups, how)


def smallest(groups: Sequence[Sequence[float]], how: str) -> Estimate:
    """Return the smallest of all values; the spread is that of each group's own smallest."""
    bottoms = [min(group) for group in groups if group]
    return _extreme(min(bottoms), bottoms, groups, how)


def _extreme(value: float, each: list[float], groups: Sequence[Sequence[float]], how: str) -> Estimate:
    return Estimate(value, min(each), max(each), sum(len(group) for group in groups), how)
