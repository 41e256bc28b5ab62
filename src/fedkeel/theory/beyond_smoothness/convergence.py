"""Theorem 4.7, Corollary 4.8 and the drift bound of Lemma 6.3."""

from __future__ import annotations

import math

from fedkeel.theory.beyond_smoothness.setting import (
    Constants,
    Steps,
    drift_factor,
    floor,
    lambda_1,
    lambda_2,
    one_round,
    rate,
)
from fedkeel.theory.beyond_smoothness.steps import (
    corollary_4_8_global_step,
    drift_limits,
    largest_global_step,
    largest_local_step,
)
from fedkeel.theory.bound import Bound, Form, assemble, printed, vacuous
from fedkeel.theory.checks import count, nonnegative, positive
from fedkeel.theory.conditions import Condition, above, at_most, below
from fedkeel.theory.numeric import decay


def theorem_4_7(c: Constants, s: Steps, *, gap_0: float, r: int, form: Form = "repaired") -> Bound:
    """Theorem 4.7: E[L(U^r) − L(U*)] after r rounds.

    Printed: (1−λ1)^r·gap_0 + 2λ2. Repaired: (1−Λ)^r·gap_0 + A1σ²/Λ. Two printed steps do not follow: a
    recursion u ← (1−λ)u + f settles at f/λ, not below 2f; and γ2 ≤ γ1τ1²/2, used to absorb the loss terms,
    would need (1+a+bη̃)/10 ≤ (τ1²/4)(1−4bη̃−2a), hence τ1² above 0.4, so Λ is taken from A2 and A3 directly.
    """
    nonnegative("gap_0", gap_0)
    count("r", r, least=0)
    shrink, name = rate(c, s, form), f"Theorem 4.7 ({form})"
    conditions = theorem_4_7_conditions(c, s, form)
    constants = _constants(c, s, form)
    if not 0 < shrink <= 1:
        return vacuous(name, conditions, constants)
    terms = {"decay": decay(shrink, r) * gap_0, "floor": floor(c, s, form)}
    return assemble(name, terms, conditions, constants)


def theorem_4_7_conditions(c: Constants, s: Steps, form: Form = "repaired") -> tuple[Condition, ...]:
    """What Theorem 4.7 asks: printed steps and the proof's limits on a, α; repaired Lemma 6.3 and Λ > 0."""
    shrink = rate(c, s, form)
    label = "λ1" if printed(form) else "Λ"
    common = (
        above("τ1 > 0", c.tau1, 0, "the loss must not have critical points away from zero loss"),
        below("τ1 < 1", c.tau1, 1, "Definition 4.3"),
        above(f"{label} > 0", shrink, 0, "each round must shrink the gap"),
        at_most(f"{label} ≤ 1", shrink, 1, "constants that allow more contradict each other"),
    )
    if printed(form):
        limit = largest_global_step(c, s.K, s.eta_l, form)
        return (
            *common,
            at_most("η_l within Theorem 4.7", s.eta_l, largest_local_step(c, s.K, form)),
            at_most("η_g ≤ τ1²/(20Kbη_l)", s.eta_g, limit),
            at_most("a ≤ τ1²/10", c.a, c.tau1**2 / 10, "asked for in the proof only"),
            at_most("α ≤ τ1²/10", c.alpha, c.tau1**2 / 10, "asked for in the proof only"),
        )
    return (*common, *drift_conditions(c, s))


def corollary_4_8(c: Constants, s: Steps, *, gap_0: float, epsilon: float, form: Form = "repaired") -> Bound:
    """Corollary 4.8: the rounds R = log(2·gap_0/ε)/rate after which the gap is at most ε.

    The rate is λ1 (printed) or Λ (repaired). Printed, all that is asked besides Theorem 4.7 is the limit of
    η_g, although 2λ2 stays above ε/2 there where Kη_l is large; repaired, ε must be twice the floor or more,
    else the value is inf.
    """
    nonnegative("gap_0", gap_0)
    positive("epsilon", epsilon)
    shrink, name = rate(c, s, form), f"Corollary 4.8 ({form})"
    lowest = floor(c, s, form)
    if printed(form):
        limit = corollary_4_8_global_step(c, s.K, s.eta_l, epsilon, form)
        reach = at_most("η_g within Corollary 4.8", s.eta_g, limit)
    else:
        reach = at_most("2·floor ≤ ε", 2 * lowest, epsilon, "raise ε, or lower the steps or the variance")
    conditions = [*theorem_4_7_conditions(c, s, form), reach]
    constants = _constants(c, s, form) | {"floor": lowest, "epsilon": epsilon}
    if not (0 < shrink <= 1 and (printed(form) or reach.holds)):
        return vacuous(name, conditions, constants)
    return assemble(name, {"rounds": rounds(2 * gap_0, epsilon, shrink)}, conditions, constants)


def rounds(gap_0: float, epsilon: float, shrink: float) -> float:
    """log(gap_0/ε)/rate: rounds until a gap that shrinks by ``shrink`` per round is at most ε."""
    if not (gap_0 >= 0 and epsilon > 0 and shrink > 0):
        values = f"gap_0, epsilon, shrink are {gap_0}, {epsilon}, {shrink}"
        raise ValueError(f"{values}: give a gap of 0 or more, and the others above 0")
    return math.log(gap_0 / epsilon) / shrink if gap_0 > epsilon else 0.0


def drift(c: Constants, s: Steps, *, loss: float, form: Form = "repaired") -> Bound:
    """Lemma 6.3: ξ, the mean of ‖W_{c,k} − U‖² over clients and local steps, at a model of this loss.

    Printed: 50η_l²(1 + K²τ2²L(U) + Kσ²). Repaired, what its proof shows once step (14) is mended:
    (20K² + 40K²τ2²)η_l²L(U) + 20Kη_l²σ², with 20 for 20K² at α = 0, see ``drift_factor``. For K = 1 the
    drift is zero and both are generous.
    """
    nonnegative("loss", loss)
    e2, k2 = s.eta_l**2, s.K**2 * c.tau2**2
    if printed(form):
        terms = {"constant": 50 * e2, "loss": 50 * e2 * k2 * loss, "noise": 50 * e2 * s.K * c.sigma2}
    else:
        terms = {"loss": drift_factor(c, s.K) * e2 * loss, "noise": 20 * s.K * e2 * c.sigma2}
    return assemble(f"Lemma 6.3 ({form})", terms, drift_conditions(c, s), {"K": s.K, "eta_l": s.eta_l})


def drift_conditions(c: Constants, s: Steps) -> tuple[Condition, ...]:
    """What Lemma 6.3 asks of the local step."""
    one, semi, lipschitz = drift_limits(c, s.K)
    return (
        at_most("η_l ≤ 1/(α²K)", s.eta_l, semi, "Lemma 6.3"),
        at_most("η_l ≤ 1/(2βK)", s.eta_l, lipschitz, "Lemma 6.3"),
        at_most("η_l ≤ 1", s.eta_l, one, "Lemma 6.3, in its proof"),
    )


def _constants(c: Constants, s: Steps, form: Form) -> dict[str, float]:
    if printed(form):
        return {"eta": s.effective, "lambda_1": lambda_1(c, s), "lambda_2": lambda_2(c, s)}
    step = one_round(c, s)
    pieces = {"gamma_1": step.gamma1, "A_1": step.A1, "A_2": step.A2, "A_3": step.A3}
    return {"eta": s.effective, **pieces, "Lambda": step.contraction}
