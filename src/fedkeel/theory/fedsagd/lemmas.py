"""FedSAGD's Lemmas D.8 to D.11: how far z is from x, how long the momentum gets, how far clients drift.

D.9 has a printed and a repaired form; the others have one. Our copy of D.9 and D.11 is hard to read; the
constants were derived again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedkeel.theory.bound import Bound, Form, assemble, choose, printed, vacuous
from fedkeel.theory.checks import count, nonnegative
from fedkeel.theory.conditions import Condition, at_most, below
from fedkeel.theory.fedsagd.convergence import AcceleratedSteps, local_step_limit

_NOISE_WITH_PRODUCT = 1.08  # 1 + e^{1/15}/15, rounded up


@dataclass(frozen=True, kw_only=True)
class DriftState:
    """‖∇f(x_t)‖² and ‖v_t‖², with σ_l² and σ_g²."""

    gradient2: float
    momentum2: float
    sigma_l2: float = 0.0
    sigma_g2: float = 0.0

    def __post_init__(self) -> None:
        for name in ("gradient2", "momentum2", "sigma_l2", "sigma_g2"):
            nonnegative(name, getattr(self, name))


def lemma_d_8(steps: AcceleratedSteps, v: Sequence[float]) -> list[float]:
    """Lemma D.8: z_t − x_t = −α(β+β²)ηη_l/(1−α'β)·v_t, an equality."""
    if steps.room <= 0:
        raise ValueError(f"alpha'·beta is {1 - steps.room:g}: z needs a value below 1")
    scale = steps.alpha * (steps.beta + steps.beta**2) * steps.eta * steps.eta_l / steps.room
    return [-scale * one for one in v]


def lemma_d_9(
    steps: AcceleratedSteps, *, T: int, moves2: float, sigma_l2: float = 0.0, form: Form = "repaired"
) -> Bound:
    """Lemma D.9: Σ_{t<T} E‖v_t‖² ≤ [Σ_t E‖(1/(sK))ΣG̃‖² + Tασ_l²/(sK²)]/(1−α'β)² as printed.

    ``moves2`` is the sum of squares on the right, of true gradients weighted as in a client's move; v_0 = 0.
    The printed form drops 2E⟨noise, later gradients⟩, which is positive where the curvature is negative.
    Repaired: η_l ≤ 1/(15LK) and 1.08·ασ_l² for ασ_l². The k-th gradient differs from that of the walk without
    noise, whose product has mean zero, by Lη_lσ_l√k·e^{Lη_lk} at most (root mean square), the noise before it
    sums to σ_l√k, and with or without λ the products add up to ασ_l²·e^{1/15}/15 < 0.072·ασ_l² or less.
    """
    name, room = f"Lemma D.9 ({form})", below("α'β < 1", 1 - steps.room, 1)
    conditions = (room,) if printed(form) else (room, *_conditions(steps))
    if steps.room <= 0:
        return vacuous(name, conditions, {"room": steps.room})
    variance = choose(form, 1.0, _NOISE_WITH_PRODUCT) * steps.alpha * nonnegative("sigma_l2", sigma_l2)
    noise = count("T", T) * variance / (steps.s * steps.K**2)
    terms = {"moves": nonnegative("moves2", moves2) / steps.room**2, "noise": noise / steps.room**2}
    return assemble(name, terms, conditions)


def lemma_d_10(steps: AcceleratedSteps, s: DriftState) -> Bound:
    """Lemma D.10, mean ‖x_{i,k} − x‖²: 36η_l²K²(‖∇f‖² + σ_g²) + 3η_l²Kσ_l² + 18β²η_l²K²‖v‖²."""
    e2, K = steps.eta_l**2, steps.K
    terms = {
        "gradient": 36 * e2 * K**2 * s.gradient2,
        "heterogeneity": 36 * e2 * K**2 * s.sigma_g2,
        "noise": 3 * e2 * K * s.sigma_l2,
        "momentum": 18 * steps.beta**2 * e2 * K**2 * s.momentum2,
    }
    return assemble("Lemma D.10", terms, _conditions(steps))


def lemma_d_11(steps: AcceleratedSteps, s: DriftState) -> Bound:
    """Lemma D.11 for one round: (1/(mK))Σ_i E‖Σ_k α_k∇F_i(x_{i,k})‖², before D.9 is put in for ‖v‖².

    (72α²η_l²L²K + 4α²/K)(‖∇f‖² + σ_g²) + 6α²η_l²L²σ_l² + 36α²β²η_l²L²K‖v‖².
    """
    a2, el2, K = steps.alpha**2, (steps.eta_l * steps.L) ** 2, steps.K
    weight = 72 * a2 * el2 * K + 4 * a2 / K
    terms = {
        "gradient": weight * s.gradient2,
        "heterogeneity": weight * s.sigma_g2,
        "noise": 6 * a2 * el2 * s.sigma_l2,
        "momentum": 36 * a2 * steps.beta**2 * el2 * K * s.momentum2,
    }
    return assemble("Lemma D.11", terms, _conditions(steps))


def _conditions(steps: AcceleratedSteps) -> tuple[Condition, ...]:
    return (
        at_most("η_l ≤ 1/(15LK)", steps.eta_l, local_step_limit(steps.L, steps.K)),
        at_most("η_lλ ≤ 1", steps.eta_l * steps.lam, 1),
    )
