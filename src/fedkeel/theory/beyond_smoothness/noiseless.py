"""Without minibatch noise: Section 5.2 and Proposition 5.1."""

from __future__ import annotations

from fedkeel.theory.beyond_smoothness.setting import Constants, Steps
from fedkeel.theory.bound import Bound, Form, assemble, printed, vacuous
from fedkeel.theory.checks import count, nonnegative, positive
from fedkeel.theory.conditions import above, at_most
from fedkeel.theory.numeric import decay, ratio


def contraction(c: Constants, s: Steps) -> float:
    """The A of (10): η̃[(2τ1²−α²)/4 − aτ2 − (2β²+α²)K²τ2²η_l² − bτ2²η̃], the share of the loss a round removes.

    Section 5.2 shows A ≥ τ1²η̃/8 under its conditions; A itself is larger (the G of the paper is τ2).
    """
    t2, e = c.tau2**2, s.effective
    slope = (2 * c.tau1**2 - c.alpha**2) / 4 - c.a * c.tau2
    return e * (slope - c.curvature * (s.K * s.eta_l) ** 2 * t2 - c.b * t2 * e)


def deterministic(c: Constants, s: Steps, *, gap_0: float, r: int, form: Form = "repaired") -> Bound:
    """Section 5.2: full local gradients, gap_r ≤ (1 − τ1²η̃/8)^r·gap_0.

    Conditions: α ≤ τ1/2, aτ2 ≤ τ1²/10, η_l ≤ τ1/(4Kτ2(2β+α)), η̃ ≤ τ1²/(16bτ2²). The formula is sound (the
    G of the paper is τ2). The repaired form adds what (7) borrows from Proposition 5.1 for the local
    steps, η_l ≤ τ1²/(10bτ2²), and σ² = 0. Where a > 0 that proposition also needs the τ1 of every client's
    own loss, not only of their mean.
    """
    nonnegative("gap_0", gap_0)
    count("r", r, least=0)
    shrink, name = c.tau1**2 * s.effective / 8, f"Section 5.2 ({form})"
    t2 = c.tau2**2
    limit = ratio(c.tau1, 4 * s.K * c.tau2 * (2 * c.beta + c.alpha))
    conditions = [
        at_most("α ≤ τ1/2", c.alpha, c.tau1 / 2),
        at_most("aτ2 ≤ τ1²/10", c.a * c.tau2, c.tau1**2 / 10),
        at_most("η_l ≤ τ1/(4Kτ2(2β+α))", s.eta_l, limit),
        at_most("η̃ ≤ τ1²/(16bτ2²)", s.effective, ratio(c.tau1**2, 16 * c.b * t2)),
        above("τ1²η̃/8 > 0", shrink, 0),
        at_most("τ1²η̃/8 ≤ 1", shrink, 1),
    ]
    if not printed(form):
        descent = ratio(c.tau1**2, 10 * c.b * t2)
        conditions.append(at_most("η_l ≤ τ1²/(10bτ2²)", s.eta_l, descent, "each local step descends"))
        conditions.append(at_most("σ² = 0", c.sigma2, 0, "the section has no minibatch noise"))
    if not 0 < shrink <= 1:
        return vacuous(name, conditions, {"rate": shrink})
    return assemble(name, {"decay": decay(shrink, r) * gap_0}, conditions, {"rate": shrink})


def gradient_descent(c: Constants, *, eta: float, gap_0: float, t: int, form: Form = "repaired") -> Bound:
    """Proposition 5.1: one client, full gradients: gap_t ≤ (1 − 0.1ητ1²)^t·gap_0.

    Conditions η ≤ τ1²/(10bτ2²) and aτ2 ≤ τ1²/2. The statement is sound and loose; its own proof gives
    0.4ητ1² for the rate, yet both forms keep the printed 0.1.
    """
    positive("eta", eta)
    nonnegative("gap_0", gap_0)
    count("t", t, least=0)
    shrink, name = 0.1 * eta * c.tau1**2, f"Proposition 5.1 ({form})"
    conditions = (
        at_most("η ≤ τ1²/(10bτ2²)", eta, ratio(c.tau1**2, 10 * c.b * c.tau2**2)),
        at_most("aτ2 ≤ τ1²/2", c.a * c.tau2, c.tau1**2 / 2),
        above("0.1ητ1² > 0", shrink, 0),
        at_most("0.1ητ1² ≤ 1", shrink, 1),
    )
    if not 0 < shrink <= 1:
        return vacuous(name, conditions, {"rate": shrink})
    return assemble(name, {"decay": decay(shrink, t) * gap_0}, conditions, {"rate": shrink})
