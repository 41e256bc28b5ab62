"""The largest ‖x_T − x_T'‖ that gradients of size Θ can cause in a linear recursion.

With gradients of any direction, at most Θ long, the worst case of δ_T = Σ_j r_j·(g_{T−1−j} − g'_{T−1−j}) is
2Θ·Σ_j |r_j|, the sum of the absolute impulse response. FedSAGD's response can oscillate, so that no single
geometric series gives it.
"""

from __future__ import annotations

import cmath
import math

from fedkeel.theory.numeric import geometric

_MOST = 1_000_000
_NEGLIGIBLE = 1e-18


def absolute_response(first: float, zero: float, trace: float, determinant: float, count: float) -> float:
    """Σ_{j<count} |r_j| of first·(z − zero)/(z² − trace·z + determinant); roots within [0, 1] or complex.

    r_0 = first, r_1 = first·(trace − zero), r_{j+2} = trace·r_{j+1} − determinant·r_j.
    """
    root = cmath.sqrt(trace**2 - 4 * determinant)
    if root.imag == 0 and root.real > 1e-6 * trace:
        return first * _real(zero, (trace + root.real) / 2, (trace - root.real) / 2, count)
    return first * _looped(zero, trace, determinant, count)


def _real(zero: float, a: float, b: float, count: float) -> float:
    """Roots 0 ≤ b < a ≤ 1: r_j = c·a^j + (1−c)·b^j changes its sign once at most, so two sums suffice."""
    c = (a - zero) / (a - b)

    def total(upto: float) -> float:
        return c * geometric(1 - a, 1.0, upto) + (1 - c) * geometric(1 - max(b, 0.0), 1.0, upto)

    if c >= 0:
        return total(count)
    change = 1.0 if b <= 0 else math.floor(math.log((1 - c) / -c) / math.log(a / b)) + 1
    if change >= count:
        return total(count)
    return 2 * total(change) - total(count)


def _looped(zero: float, trace: float, determinant: float, count: float) -> float:
    """Sum term by term; past the last term that is computed, the roots' modulus bounds the rest."""
    before, here, total, j = 1.0, trace - zero, 1.0, 1
    while j < min(count, _MOST):
        total += abs(here)
        before, here, j = here, trace * here - determinant * before, j + 1
        if abs(before) + abs(here) < _NEGLIGIBLE * total:
            return total
    return total if j >= count else total + _rest(zero, trace, determinant, j)


def _rest(zero: float, trace: float, determinant: float, j: int) -> float:
    """A bound on Σ_{i≥j} |r_i| for complex roots; inf where they coincide."""
    gap = cmath.sqrt(trace**2 - 4 * determinant)
    modulus = math.sqrt(max(determinant, 0.0))
    if gap == 0 or modulus >= 1:
        return math.inf
    c = ((trace + gap) / 2 - zero) / gap
    return (abs(c) + abs(1 - c)) * math.exp(j * math.log(max(modulus, 1e-300))) / (1 - modulus)
