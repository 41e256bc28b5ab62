"""Input checks of the calculators: the thing, its value, the fix."""

from __future__ import annotations

import math


def finite(name: str, value: float) -> float:
    """A real number."""
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}: give a finite number")
    return value


def positive(name: str, value: float) -> float:
    """A finite number above zero."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}: give a finite number above 0")
    return value


def nonnegative(name: str, value: float) -> float:
    """A finite number, zero included."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {value}: give a finite number, 0 or more")
    return value


def count(name: str, value: float, least: int = 1) -> float:
    """A whole number of rounds, steps, clients."""
    if not (math.isfinite(value) and value >= least and value == int(value)):
        raise ValueError(f"{name} is {value}: give a whole number, {least} or more")
    return value
