"""Input checks of the calculators: the thing, its value, the fix.

Sizes are limited as well as signs: no quantity of a real run lies outside these ranges, and within them no
formula here overflows into a NaN.
"""

from __future__ import annotations

import math

LARGEST = 1e30
SMALLEST = 1e-30
NEGLIGIBLE = 1e-60
MOST = 10**15


def finite(name: str, value: float) -> float:
    """A number of either sign."""
    if not (math.isfinite(value) and abs(value) <= LARGEST):
        raise ValueError(f"{name} is {value}: give a finite number, within ±{LARGEST:g}")
    return value


def positive(name: str, value: float) -> float:
    """A number above zero."""
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{name} is {value}: give a finite number above 0 ({SMALLEST:g} to {LARGEST:g})")
    return value


def nonnegative(name: str, value: float) -> float:
    """Zero, or a number above it; tinier ones than ``NEGLIGIBLE`` are to be given as 0."""
    if not (value == 0 or NEGLIGIBLE <= value <= LARGEST):
        raise ValueError(f"{name} is {value}: give a finite number, 0 or {NEGLIGIBLE:g} to {LARGEST:g}")
    return value


def count(name: str, value: float, least: int = 1) -> float:
    """A whole number of rounds, steps, clients."""
    if not (least <= value <= MOST and value == int(value)):
        raise ValueError(f"{name} is {value}: give a whole number, {least} or more")
    return value
