"""Arithmetic that overflows to ``inf`` and takes limits instead of dividing zero by zero."""

from __future__ import annotations

import math


def exp(x: float) -> float:
    """``e**x``, infinite where a float would overflow."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def expm1(x: float) -> float:
    """``e**x − 1``, infinite where a float would overflow."""
    try:
        return math.expm1(x)
    except OverflowError:
        return math.inf


def power(base: float, exponent: float) -> float:
    """``base**exponent`` for a base of 0 or more, infinite where it overflows or divides by zero."""
    try:
        return math.pow(base, exponent)
    except (OverflowError, ValueError):
        return math.inf


def ratio(x: float, y: float) -> float:
    """``x / y`` for x, y of 0 or more; ``x / 0`` is inf, and ``0 / 0`` too (no limit is known)."""
    return x / y if y > 0 else math.inf


def geometric(rate: float, step: float, count: float) -> float:
    """Σ_{k<count} step·(1 − step·rate)^k = (1 − (1 − step·rate)^count) / rate; step·count at rate 0.

    Needs ``0 <= step·rate <= 1``.
    """
    x = step * rate
    if x < 1e-300:
        return step * count
    if x >= 1:
        return 1 / rate
    return -math.expm1(count * math.log1p(-x)) / rate


def decay(rate: float, count: float) -> float:
    """``(1 − rate)**count`` for a rate within [0, 1], accurate for small rates."""
    if rate >= 1:
        return 0.0 if count > 0 else 1.0
    return math.exp(count * math.log1p(-rate))


def harmonic(n: float) -> float:
    """1 + ½ + … + 1/n for a whole n of 0 or more."""
    if n < 100:
        return math.fsum(1 / k for k in range(1, int(n) + 1))
    euler = 0.5772156649015329
    return math.log(n) + euler + 1 / (2 * n) - 1 / (12 * n**2) + 1 / (120 * n**4)
