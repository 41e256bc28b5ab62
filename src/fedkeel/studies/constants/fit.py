"""Which of the pairs (a, b) and (α, β) that hold promise the fewest rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedkeel.studies.constants.estimate import Estimate
from fedkeel.studies.constants.pairs import Quotients
from fedkeel.studies.constants.programs import Floats, Frontier, frontier, lowest
from fedkeel.tensors.streams import Stream
from fedkeel.theory import beyond_smoothness as bs

LARGEST_TAU1 = 0.99  # Definition 4.3 asks τ1 < 1; a larger one holds with this too
_HALVES = 16


class Fit(NamedTuple):
    """The constants chosen, whether they promise anything (Λ > 0 for some steps), and both frontiers."""

    constants: bs.Constants
    promising: bool
    smooth: Frontier
    lipschitz: Frontier
    a: Estimate
    b: Estimate
    alpha: Estimate
    beta: Estimate

    def at(self, steps: bs.Steps) -> bs.Constants:
        """Return the corners with the largest Λ for given steps; the chosen ones where none has Λ > 0."""
        c = self.constants
        found = _candidates(self.smooth, self.lipschitz, c.tau1, c.tau2, c.sigma2)
        best = max(found, key=lambda candidate: bs.rate(candidate, steps))
        return best if bs.rate(best, steps) > 0 else c


def fit(quotients: Quotients, *, tau1: float, tau2: float, sigma2: float, K: int, stream: Stream) -> Fit:
    """Choose a corner of either frontier so that R = log(2·gap/ε)/Λ is smallest.

    For given steps Λ is linear in (a, b) and linear in (α², β²), so over both frontiers it is largest at a
    pair of corners; steps are set anew for each (half the largest η_l, then the fastest η_g). Where no
    corner gives Λ > 0, the least demanding ends a = 0, α = 0 are taken.
    """
    smooth, lipschitz = frontier(*quotients.smooth), frontier(*quotients.lipschitz)
    best, most = None, 0.0
    for candidate in _candidates(smooth, lipschitz, min(tau1, LARGEST_TAU1), tau2, sigma2):
        rate = _rate(candidate, K)
        if best is None or rate > most:
            best, most = candidate, rate
    assert best is not None
    alpha2, beta2 = best.alpha**2, best.beta**2
    b_low, b_high = _on_halves(*quotients.smooth, best.a, stream.branch("smooth"))
    beta_low, beta_high = (
        x**0.5 for x in _on_halves(*quotients.lipschitz, alpha2, stream.branch("lipschitz"))
    )
    left, right = smooth.corners[0], smooth.corners[-1]
    how = "corner of the frontier with the fewest rounds; spread: whole frontier"
    halves = "spread: refitted on halves of the pairs"
    n, m = smooth.samples, lipschitz.samples
    return Fit(
        best,
        most > 0,
        smooth,
        lipschitz,
        Estimate(best.a, left.p, right.p, n, how),
        Estimate(best.b, b_low, b_high, n, f"smallest b beside this a; {halves}"),
        Estimate(best.alpha, lipschitz.corners[0].p ** 0.5, lipschitz.corners[-1].p ** 0.5, m, how),
        Estimate(beta2**0.5, beta_low, beta_high, m, f"smallest β beside this α; {halves}"),
    )


def _candidates(
    smooth: Frontier, lipschitz: Frontier, tau1: float, tau2: float, sigma2: float
) -> Iterator[bs.Constants]:
    for a, b in smooth.corners:
        for alpha2, beta2 in lipschitz.corners:
            yield bs.Constants(
                a=_clean(a),
                b=_clean(b),
                alpha=_clean(math.sqrt(alpha2)),
                beta=_clean(math.sqrt(beta2)),
                tau1=_clean(tau1),
                tau2=max(tau2, tau1, 1e-30),
                sigma2=_clean(sigma2),
            )


def _rate(c: bs.Constants, K: int) -> float:
    """Return Λ at half the largest local step and the fastest global one; 0 where no step is safe."""
    eta_l = bs.largest_local_step(c, K) / 2
    if eta_l <= 1e-30:
        return 0.0
    eta_g = bs.fastest_global_step(c, K, eta_l)
    if not 1e-30 < eta_g < 1e30:
        return 0.0
    return bs.rate(c, bs.Steps(K=K, eta_l=eta_l, eta_g=eta_g))


def _on_halves(c: Floats, r: Floats, p: float, stream: Stream) -> tuple[float, float]:
    """Return the smallest and largest q beside p over random halves of the samples."""
    rng = stream.numpy()
    count = len(r)
    picks = [rng.permutation(count)[: max(1, count // 2)] for _ in range(_HALVES)]
    found = np.array([lowest(c[pick], r[pick], p) for pick in picks])
    return float(found.min()), lowest(c, r, p)


def _clean(value: float) -> float:
    """Return 0 for what the calculators call negligible."""
    return value if value > 1e-50 else 0.0
