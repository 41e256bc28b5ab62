"""The largest steps the theory calls safe."""

from __future__ import annotations

import math

from fedkeel.theory.beyond_smoothness.setting import Constants, drift_factor
from fedkeel.theory.bound import Form, choose, printed
from fedkeel.theory.checks import count, positive
from fedkeel.theory.numeric import ratio


def largest_local_step(c: Constants, K: int, form: Form = "repaired") -> float:
    """The largest η_l the theorem admits.

    Printed (Theorem 4.7): min{1/(α²K), 1/(100Kτ2(β+α)), 1/(100√K(β+α))}.
    Repaired: what the proof uses, min{1, 1/(α²K), 1/(2βK)} (Lemma 6.3), and Λ > 0 for some η_g, that is
    η_l² < [½(1−2a)τ1² − α²/4 − aα²/2 − a/2] / [(2β²+α²)(½+a/2)·d], d the ``drift_factor``; 0 if no step is
    safe.
    """
    count("K", K)
    if printed(form):
        both = c.beta + c.alpha
        tight = min(ratio(1, 100 * K * c.tau2 * both), ratio(1, 100 * math.sqrt(K) * both))
        return min(ratio(1, c.alpha**2 * K), tight)
    margin = _margin(c)
    if margin <= 0:
        return 0.0
    slope = c.curvature * (0.5 + c.a / 2) * drift_factor(c, K)
    return min(*drift_limits(c, K), math.sqrt(ratio(margin, slope)))


def largest_global_step(c: Constants, K: int, eta_l: float, form: Form = "repaired") -> float:
    """The largest η_g: printed τ1²/(20Kbη_l); repaired the η_g at which Λ falls back to zero.

    Λ/η̃ is a straight line p − qη̃ with q = b(2τ1² + (2β²+α²)·d·η_l² + α²), so Λ > 0 exactly
    below η̃ = p/q, and Λ is largest at half of it (``fastest_global_step``). 0 if no step is safe.
    """
    count("K", K)
    positive("eta_l", eta_l)
    if printed(form):
        return ratio(c.tau1**2, 20 * K * c.b * eta_l)
    drift = c.curvature * drift_factor(c, K) * eta_l**2
    p = _margin(c) - drift * (0.5 + c.a / 2)
    q = c.b * (2 * c.tau1**2 + drift + c.alpha**2)
    return ratio(p, q) / (K * eta_l) if p > 0 else 0.0


def fastest_global_step(c: Constants, K: int, eta_l: float) -> float:
    """The η_g with the largest Λ (repaired form): half of ``largest_global_step``."""
    return largest_global_step(c, K, eta_l) / 2


def corollary_4_8_global_step(
    c: Constants, K: int, eta_l: float, epsilon: float, form: Form = "repaired"
) -> float:
    """Corollary 4.8: η_g ≤ min{τ1²/(20Kbη_l), 2ε/(σ²(1+a+τ1²/(20K)))}; repaired the second over Kη_l.

    The proof bounds 2λ2, in which η̃ and not η_g stands. (Its τ1²/(20K) should be τ1²/20; the slack of
    2 against 2.5 covers that.) This is about λ2: the floor of the repaired recursion has parts no η_g
    removes, so use ``corollary_4_8`` to see whether ε can be reached.
    """
    positive("epsilon", epsilon)
    first = largest_global_step(c, K, eta_l, "as_printed")
    noise = c.sigma2 * (1 + c.a + c.tau1**2 / (20 * K))
    return min(first, ratio(2 * epsilon, noise * choose(form, 1, K * eta_l)))


def _margin(c: Constants) -> float:
    """Λ/η̃ in the limit of small steps: ½(1−2a)τ1² − α²/4 − aα²/2 − a/2."""
    return (1 - 2 * c.a) * c.tau1**2 / 2 - c.alpha**2 / 4 - c.a * c.alpha**2 / 2 - c.a / 2


def drift_limits(c: Constants, K: int) -> tuple[float, float, float]:
    """Lemma 6.3's limits of η_l: 1, 1/(α²K) and 1/(2βK)."""
    return 1.0, ratio(1, c.alpha**2 * K), ratio(1, 2 * c.beta * K)
