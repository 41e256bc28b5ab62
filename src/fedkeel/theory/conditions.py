"""What a theorem asks of a run, and by how much the run misses it."""

from __future__ import annotations

import math
from typing import NamedTuple


class Condition(NamedTuple):
    """One requirement of a theorem, checked.

    ``factor`` says how far the checked quantity is past its limit: at most 1 when the condition holds,
    3 when it is missed threefold, ``inf`` when no scaling would help (a sign is wrong, a limit is zero).
    """

    name: str
    holds: bool
    factor: float
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.verdict} ({self.text})"

    @property
    def verdict(self) -> str:
        """``holds``, or ``violated`` with the factor where there is one."""
        return "holds" if self.holds else violated(self.factor)


def violated(factor: float) -> str:
    """Say by how much a limit is missed: a factor, per cent close to it, or that equal is not enough."""
    if math.isinf(factor):
        return "violated"
    if factor == 1:
        return "violated, equal is not enough"
    if f"{factor:.3g}" == "1":
        return f"violated by {100 * (factor - 1):.2g} %"
    return f"violated by a factor {factor:.3g}"


def at_most(name: str, value: float, limit: float, why: str = "") -> Condition:
    """Require ``value <= limit``."""
    return _compare(name, value <= limit, _excess(value, limit), f"{value:.6g} against {limit:.6g}", why)


def below(name: str, value: float, limit: float, why: str = "") -> Condition:
    """Require ``value < limit``."""
    return _compare(name, value < limit, _excess(value, limit), f"{value:.6g} against {limit:.6g}", why)


def at_least(name: str, value: float, limit: float, why: str = "") -> Condition:
    """Require ``value >= limit``."""
    return _compare(name, value >= limit, _excess(limit, value), f"{value:.6g} against {limit:.6g}", why)


def above(name: str, value: float, limit: float, why: str = "") -> Condition:
    """Require ``value > limit``."""
    return _compare(name, value > limit, _excess(limit, value), f"{value:.6g} against {limit:.6g}", why)


def _compare(name: str, holds: bool, factor: float, numbers: str, why: str) -> Condition:
    if holds:  # rounding must not show a factor above 1 beside "holds"
        factor = min(factor, 1.0)
    return Condition(name, holds, factor, f"{numbers}; {why}" if why else numbers)


def _excess(larger: float, smaller: float) -> float:
    """How many times ``larger`` holds ``smaller``: 0 or inf where the quotient has no meaning."""
    if larger <= smaller <= 0:
        return 0.0 if larger < smaller else 1.0
    if smaller <= 0:
        return math.inf
    if math.isinf(smaller):
        return 1.0 if math.isinf(larger) and larger > 0 else 0.0
    return max(larger, 0.0) / smaller
