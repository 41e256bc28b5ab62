"""FedSAGD, Theorem 4.1: the learning-rate conditions and the rate of the auxiliary sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedkeel.theory.bound import Bound, Form, assemble, printed
from fedkeel.theory.checks import count, nonnegative, positive
from fedkeel.theory.conditions import Condition, at_most, below
from fedkeel.theory.numeric import geometric, ratio

Vector = Sequence[float]


@dataclass(frozen=True, kw_only=True)
class AcceleratedSteps:
    """FedSAGD's steps: K local ones of size ``eta_l``, server step ``eta``, s of m clients, its β and λ."""

    K: int
    eta_l: float
    eta: float
    s: int
    m: int
    beta: float
    lam: float
    L: float

    def __post_init__(self) -> None:
        for name in ("K", "s", "m"):
            count(name, getattr(self, name))
        if self.s > self.m:
            raise ValueError(f"s is {self.s} of m = {self.m} clients: give s <= m")
        for name in ("eta_l", "eta", "L"):
            positive(name, getattr(self, name))
        nonnegative("beta", self.beta)
        nonnegative("lam", self.lam)

    @property
    def alpha(self) -> float:
        """α = Σ_k (1−η_lλ)^{K−1−k}, K at λ = 0."""
        return geometric(self.lam, self.eta_l, self.K) / self.eta_l

    @property
    def room(self) -> float:
        """1 − α'β with α' = α/K."""
        return 1 - self.alpha / self.K * self.beta


def local_move(steps: AcceleratedSteps, gradients: Sequence[Vector], v: Vector) -> list[float]:
    """Equation (4), what a client moves: −η_l·Σ_k α_k g̃_k − αβη_l·v, with α_k = (1−η_lλ)^{K−1−k}.

    g̃_k is the gradient with the decay μ·y_k; ``gradients`` has K of them.
    """
    if len(gradients) != steps.K:
        raise ValueError(f"gradients has {len(gradients)} entries: give K = {steps.K}, one per local step")
    weighted = weighted_gradient(steps, gradients)
    pairs = zip(weighted, v, strict=True)
    return [-steps.eta_l * (g + steps.alpha * steps.beta * momentum) for g, momentum in pairs]


def weighted_gradient(steps: AcceleratedSteps, gradients: Sequence[Vector]) -> list[float]:
    """G = Σ_k α_k g̃_k, a client's gradients as its move contains them."""
    factors = [(1 - steps.eta_l * steps.lam) ** (steps.K - 1 - k) for k in range(len(gradients))]
    return [
        math.fsum(a * x for a, x in zip(factors, entry, strict=True))
        for entry in zip(*gradients, strict=True)
    ]


def auxiliary_point(steps: AcceleratedSteps, x: Vector, before: Vector, mean_gradient: Vector) -> list[float]:
    """Equation (5): z_t = [(1+β)x_t − βγx_{t−1} + βηη_l·Ḡ_{t−1}]/(1−α'β), γ = 1 + α'; z_0 = x_0.

    Ḡ_{t−1} is the cohort's mean of ``weighted_gradient`` in the round before. z moves like plain SGD:
    z_{t+1} − z_t = −ηη_l/(1−α'β)·Ḡ_t (Lemma D.7), whatever the momentum does.
    """
    if steps.room <= 0:
        raise ValueError(f"alpha'·beta is {1 - steps.room:g}: z needs a value below 1")
    past = steps.beta * (1 + steps.alpha / steps.K)
    step = steps.beta * steps.eta * steps.eta_l
    entries = zip(x, before, mean_gradient, strict=True)
    return [((1 + steps.beta) * now - past * then + step * g) / steps.room for now, then, g in entries]


def local_step_limit(L: float, K: int) -> float:
    """η_l ≤ 1/(15LK)."""
    return 1 / (15 * positive("L", L) * count("K", K))


def decaying_step(L: float, K: int, T: int) -> float:
    """η_l = 1/(LK√T), the step behind Remark 4.2; with it the linear stability bounds grow like √T."""
    return 1 / (positive("L", L) * count("K", K) * math.sqrt(count("T", T)))


def server_step(s: int, K: int) -> float:
    """η = √(sK), the other half of Remark 4.2 (up to a constant)."""
    return math.sqrt(count("s", s) * count("K", K))


def product_limit(steps: AcceleratedSteps, *, constant: float = 4.0) -> float:
    """Theorem 4.1's limit of η·η_l.

    m(s−1)/(s(m−1))·min{(1−α'β)²√K/(4αβL√(3α)), (1−α'β)η/(6βL√(2α)), (1−α'β)/(2αL)}; Lemma D.12
    prints 10 for the 4 (``constant=10``), its proof uses 4. One client per round (s = 1) is ruled out by the
    factor in front, unless it is the only one (taken as 1 then). 0 where α'β ≥ 1.
    """
    room, alpha, beta, L = steps.room, steps.alpha, steps.beta, steps.L
    if room <= 0:
        return 0.0
    share = steps.m * (steps.s - 1) / (steps.s * (steps.m - 1)) if steps.m > 1 else 1.0
    first = ratio(
        room**2 * math.sqrt(steps.K), positive("constant", constant) * alpha * beta * L * math.sqrt(3 * alpha)
    )
    second = ratio(room * steps.eta, 6 * beta * L * math.sqrt(2 * alpha))
    return share * min(first, second, room / (2 * alpha * L)) if share > 0 else 0.0


def theorem_4_1_conditions(steps: AcceleratedSteps, form: Form = "repaired") -> tuple[Condition, ...]:
    """The learning-rate conditions of Theorem 4.1; both forms alike.

    Kept as the specification has them. Splitting the proof's sum in three would ask 6βL√(6α) and 6αL in the
    second and third limit, and would not need the factor m(s−1)/(s(m−1)).
    """
    printed(form)
    return (
        at_most("η_l ≤ 1/(15LK)", steps.eta_l, local_step_limit(steps.L, steps.K)),
        at_most("η_lλ ≤ 1", steps.eta_l * steps.lam, 1),
        below("α'β < 1", 1 - steps.room, 1),
        at_most("η·η_l within Theorem 4.1", steps.eta * steps.eta_l, product_limit(steps)),
    )


def theorem_4_1(
    steps: AcceleratedSteps, *, T: int, D_0: float, sigma_l2: float, sigma_g2: float, form: Form = "repaired"
) -> Bound:
    """Theorem 4.1: the order of the mean of E‖∇f(z_t)‖², every hidden constant set to 1. Both forms alike.

    LD_0/√(sKT) + σ_l²/√(sKT) + (1/T)(σ_l²/K + Kσ_l² + σ_l²/(sK) + σ_g²) + Ψ_1 + Ψ_2, where with
    ω = (m−s)/(m−1)·(1/T + 1/(sK²T) + 1/√(sKT)): Ψ_1 = (1/T + K/(sT))·ω·σ_l², Ψ_2 = (K/T + K)·ω·σ_g².
    The bracket is unreadable in our copy and taken from the last display of the proof.
    It presumes η ~ √(sK) and η_l ~ 1/(LK√T); the Ψ vanish when all clients take part.
    """
    printed(form)
    K, s, m = steps.K, steps.s, steps.m
    sl, sg = nonnegative("sigma_l2", sigma_l2), nonnegative("sigma_g2", sigma_g2)
    speed = 1 / math.sqrt(s * K * count("T", T))
    partial = (m - s) / (m - 1) if m > 1 else 0.0
    omega = partial * (1 / T + 1 / (s * K**2 * T) + speed)
    terms = {
        "initial": steps.L * nonnegative("D_0", D_0) * speed,
        "noise": sl * speed,
        "drift": (sl / K + K * sl + sl / (s * K) + sg) / T,
        "sampling noise": (1 / T + K / (s * T)) * omega * sl,
        "sampling heterogeneity": (K / T + K) * omega * sg,
    }
    constants = {"alpha": steps.alpha, "room": steps.room}
    hidden = Condition("the constants of the order are known", False, math.inf, "each is set to 1")
    conditions = (*theorem_4_1_conditions(steps, form), hidden)
    return assemble(f"Theorem 4.1, order ({form})", terms, conditions, constants)
