"""Theorem 12 needs the largest distance of a sample's gradient: with σ_l instead a run exceeds the bound.

One client with S = 100 samples on a line, K = 1, η = c/t, T = 3,000, q = cKL = 0.1. At 0 one sample has the
gradient 1 and the others −1/99, so that their mean is 0, the largest distance 1 and σ_l = √(1/99) ≈ 0.1005.
The others have the curvature −L: they drive two runs apart. In the second run the one sample has −1.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedkeel.theory import fedinit as fi

S, T, L, Q = 100, 3000, 10.0, 0.1
PAIRS = 10_000
SAMPLING = fi.Sampling(N=1, C=1, S=S, K=1, T=T, c=Q / L, L_G=1.0)
U = 1 / L


def lonely(x: np.ndarray, sign: float = 1.0) -> np.ndarray:
    """The slope of the one sample's loss: 1 at 0, and zero from 1/L on, so that the loss spans 1/L = U."""
    return sign * np.maximum(1 - L * np.abs(x), 0)


def common(x: np.ndarray) -> np.ndarray:
    """The slope of the others' loss: curvature −L around 0, and flat far out, so that they span less."""
    far = L * np.abs(x)
    return -1 / (S - 1) - np.sign(x) * np.maximum(np.minimum(far, 1 - far), 0)


def loss_of_the_lonely(x: np.ndarray) -> np.ndarray:
    reach = np.clip(x, -1 / L, 1 / L)
    return reach - L * reach * np.abs(reach) / 2


def measured_gap() -> float:
    """E|f_z(w_T) − f_z(w_T')| for z the one sample, over pairs of runs that draw the same samples."""
    rng = np.random.default_rng(12)
    x, other = np.zeros(PAIRS), np.zeros(PAIRS)
    for t in range(T):
        eta = SAMPLING.c / max(t, 1)
        met = np.flatnonzero(rng.random(PAIRS) < 1 / S)
        step, step_of_other = common(x), common(other)
        step[met], step_of_other[met] = lonely(x[met]), lonely(other[met], -1.0)
        x -= eta * step
        other -= eta * step_of_other
    return float(np.abs(loss_of_the_lonely(x) - loss_of_the_lonely(other)).mean())


def test_the_problem_has_the_constants_it_is_given():
    x = np.linspace(-1 / L, 1 / L, 4001)
    ones, rest = lonely(x), common(x)
    mean = (ones + (S - 1) * rest) / S
    spread = np.maximum(np.abs(ones - mean), np.abs(rest - mean))
    variance = ((ones - mean) ** 2 + (S - 1) * (rest - mean) ** 2) / S
    assert spread.max() == pytest.approx(1)
    assert np.sqrt(variance.max()) == pytest.approx(99**-0.5)
    assert max(np.abs(ones).max(), np.abs(rest).max()) == pytest.approx(SAMPLING.L_G)
    for slope in (ones, rest):
        assert np.abs(np.diff(slope)).max() <= L * (x[1] - x[0]) * (1 + 1e-9)
        assert np.ptp(np.cumsum(slope)) * (x[1] - x[0]) <= U * (1 + 1e-3)
    assert (
        SAMPLING.c * (1 + sum(1 / t for t in range(1, T))) * SAMPLING.L_G < 1 / L
    )  # no run leaves the interval


def test_a_run_exceeds_theorem_12_with_the_deviation_and_stays_below_it_with_the_largest_distance():
    deviation = fi.theorem_12(SAMPLING, beta=0.0, L=L, U=U, sample_spread=99**-0.5)
    largest = fi.theorem_12(SAMPLING, beta=0.0, L=L, U=U, sample_spread=1.0)
    assert deviation.holds
    assert largest.holds
    gap = measured_gap()
    assert deviation.guaranteed == pytest.approx(1.52e-3, rel=0.01)
    assert gap == pytest.approx(3.0e-3, rel=0.1)
    assert deviation.guaranteed < 0.6 * gap
    assert gap < largest.guaranteed
