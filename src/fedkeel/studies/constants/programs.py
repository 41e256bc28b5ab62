"""Two constants at once: the pairs (p, q) with q + p·c_i ≥ r_i on every sample, by linear programs.

The only place that imports SciPy (the extra `theory`); the programs are solved by its HiGHS.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkeel.common.errors import ConfigError

Floats = NDArray[np.float64]
_SAME = 1e-6  # corners closer than this, in units of the whole frontier, are one
_MOST_CORNERS = 64
INSTALL = 'the constants study solves linear programs with SciPy: pip install "fedkeel[theory]"'


class Corner(NamedTuple):
    """A pair that cannot be lowered in one part without raising the other."""

    p: float
    q: float


class Frontier(NamedTuple):
    """The corners of the region of pairs that hold on all samples, from the smallest p to the smallest q."""

    corners: tuple[Corner, ...]
    samples: int
    programs: int


def frontier(c: Floats, r: Floats, least_p: float = 0.0) -> Frontier:
    """Return the frontier of {p ≥ least_p, q ≥ 0: q + p·c_i ≥ r_i for all i}, for c ≥ 0.

    A corner minimises some u·p + v·q. Starting from the two ends, the program whose weights are normal to
    two neighbours either finds a corner between them or shows that there is none, so all corners are found.
    """
    solve = _solver()
    c_unit, r_unit = max(float(c.max()), 1e-300), max(float(r.max()), 1e-300)
    scaled = _Problem(solve, c / c_unit, r / r_unit, least_p * c_unit / r_unit)
    found = scaled.corners()
    real = [max(p * r_unit / c_unit, least_p) for p, _ in found]
    corners = tuple(Corner(p, _zero(lowest(c, r, p), r_unit)) for p in real)
    return Frontier(corners, len(r), scaled.programs)


def lowest(c: Floats, r: Floats, p: float) -> float:
    """Return the smallest q beside a given p, exactly."""
    return max(0.0, float(np.max(r - p * c)))


def tightest(c: Floats, r: Floats, least_p: float = 0.0) -> Corner:
    """Return the pair whose line q + p·c lies lowest over the samples, summed: one program."""
    c_unit, r_unit = max(float(c.max()), 1e-300), max(float(r.max()), 1e-300)
    problem = _Problem(_solver(), c / c_unit, r / r_unit, least_p * c_unit / r_unit)
    p = max(problem.solve(float(np.mean(c / c_unit)), 1.0).p * r_unit / c_unit, least_p)
    return Corner(p, _zero(lowest(c, r, p), r_unit))


def _zero(q: float, unit: float) -> float:
    """Return 0 for what is only rounding."""
    return q if q > 1e-13 * unit else 0.0


class _Problem:
    """The samples in units in which the largest c and the largest r are 1."""

    def __init__(self, linprog: Any, c: Floats, r: Floats, least_p: float) -> None:
        self.linprog, self.least_p, self.programs = linprog, least_p, 0
        keep = r > 0  # the others ask nothing of p, q ≥ 0
        self.c, self.r = c[keep], r[keep]

    def corners(self) -> list[Corner]:
        """Return all corners from the left end to the right."""
        if not len(self.r):
            return [Corner(self.least_p, 0.0)]
        left = Corner(self.least_p, lowest(self.c, self.r, self.least_p))
        right = self.solve(1e-9, 1.0)
        if right.p - left.p < _SAME * max(right.p, 1e-300) or left.q - right.q < _SAME * left.q:
            return [left]
        found, todo = [left, right], [(left, right)]
        while todo and len(found) < _MOST_CORNERS:
            one, other = todo.pop()
            wide, high = other.p - one.p, one.q - other.q
            between = self.solve(high, wide)
            gain = high * (one.p - between.p) + wide * (one.q - between.q)
            if gain > _SAME * high * wide:
                found.append(between)
                todo += [(one, between), (between, other)]
        return sorted(found)

    def solve(self, weight_p: float, weight_q: float) -> Corner:
        """Minimise weight_p·p + weight_q·q."""
        self.programs += 1
        unit = max(weight_p, weight_q)
        found = self.linprog(
            [weight_p / unit, weight_q / unit],
            A_ub=-np.column_stack([self.c, np.ones_like(self.c)]),
            b_ub=-self.r,
            bounds=[(self.least_p, None), (0.0, None)],
            method="highs",
        )
        assert found.status == 0, found.message
        return Corner(float(found.x[0]), float(found.x[1]))


def _solver() -> Any:
    try:
        from scipy.optimize import linprog  # noqa: PLC0415  an extra
    except ImportError:
        raise ConfigError(INSTALL) from None
    return linprog
