"""The FedInit poster (NeurIPS version of the paper): its bounds under (G², B²) heterogeneity, and its costs.

The poster names λ, κ_1, κ_2 and C_Δ without defining them, so they are arguments. Its assumption is
E‖∇f_i‖² ≤ G² + B²‖∇f‖² and its Polyak-Łojasiewicz constant μ satisfies 2μ(f − f*) ≤ ‖∇f‖².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedkeel.theory.bound import Bound, Form, assemble, choose, printed
from fedkeel.theory.checks import count, finite, nonnegative, positive
from fedkeel.theory.conditions import Condition, above, at_least
from fedkeel.theory.fedinit.constants import RelaxedRun
from fedkeel.theory.fedinit.generalisation import Sampling
from fedkeel.theory.numeric import exp, power

_UNDEFINED = Condition(
    "the constants are the poster's", False, math.inf, "it names λ, κ_1, κ_2, C_Δ and does not define them"
)


@dataclass(frozen=True, kw_only=True)
class Heterogeneity:
    """λ, κ_1, κ_2 of the poster, with G² and σ_l²."""

    lam: float
    kappa_1: float
    kappa_2: float
    G2: float
    sigma_l2: float

    def __post_init__(self) -> None:
        positive("lam", self.lam)
        for name in ("kappa_1", "kappa_2", "G2", "sigma_l2"):
            nonnegative(name, getattr(self, name))


def gradient_norm(run: RelaxedRun, h: Heterogeneity, form: Form = "repaired") -> Bound:
    """First row: mean E‖∇f‖² ≤ 2D/(ληKT) + κ_2ηLσ_l²/(λN) + 3κ_1ηKLG²/(λN). Both forms alike.

    Its last term has K above the line: the rate 1/√(NKT) beside it is that of G = 0
    (``rate_theorem_1``).
    """
    printed(form)
    terms = {
        "initial": 2 * run.D / (h.lam * run.eta * run.K * run.T),
        "noise": h.kappa_2 * run.eta * run.L * h.sigma_l2 / (h.lam * run.N),
        "heterogeneity": 3 * h.kappa_1 * run.eta * run.K * run.L * h.G2 / (h.lam * run.N),
    }
    return assemble(f"poster, gradient norm ({form})", terms, (_UNDEFINED,), {"lambda": h.lam})


def suboptimality(run: RelaxedRun, h: Heterogeneity, *, mu: float, form: Form = "repaired") -> Bound:
    """Second row: E[f(w^T) − f*] ≤ e^{−λμηKT}D + 3κ_1ηKLG²/(2μλN) + κ_2ηLσ_l²/(2μλN). Both forms alike."""
    printed(form)
    scale = run.eta * run.L / (2 * positive("mu", mu) * h.lam * run.N)
    terms = {
        "initial": exp(-h.lam * mu * run.eta * run.K * run.T) * run.D,
        "heterogeneity": 3 * h.kappa_1 * run.K * h.G2 * scale,
        "noise": h.kappa_2 * h.sigma_l2 * scale,
    }
    return assemble(f"poster, suboptimality ({form})", terms, (_UNDEFINED,), {"lambda": h.lam, "mu": mu})


def stability(
    s: Sampling, *, beta: float, L: float, U: float, sigma_l: float, C_delta: float, form: Form = "repaired"
) -> Bound:
    """Last row: (1/S)((UTK)^{cL}/L)^{1/(1+cL)} + (1+β)^{1/(βcL)}·(ULTK/(2(L_G²+SL_Gσ_l)))^{cL/(1+cL)}·√C_Δ/T.

    Both forms alike. The coefficient (1+β)^{1/(βcL)} tends to e^{1/(cL)} as β → 0, which is used there.
    """
    printed(form)
    x = s.c * positive("L", L)
    spread = 2 * (s.L_G**2 + s.S * s.L_G * nonnegative("sigma_l", sigma_l))
    reach = positive("U", U) * s.T * s.K
    conditions = (
        _UNDEFINED,
        above("β > −1", finite("beta", beta), -1),
        above("L_G > 0", s.L_G, 0, "the second term divides by L_G² + S·L_G·σ_l"),
    )
    first = power(power(reach, x) / L, 1 / (1 + x)) / s.S
    growth = exp((math.log1p(beta) / beta if beta else 1.0) / x) if beta > -1 else math.inf
    tail = power(reach * L / spread, x / (1 + x)) if spread > 0 else math.inf
    second = growth * tail * math.sqrt(nonnegative("C_delta", C_delta)) / s.T if C_delta else 0.0
    terms = {"samples": first, "divergence": second if beta > -1 and spread > 0 else math.inf}
    return assemble(f"poster, stability ({form})", terms, conditions, {"cL": x})


def stability_rate(*, S: int, K: int, T: int, c: float, L: float, form: Form = "repaired") -> float:
    """Printed 1/S + (K/T)^{1/(1+cL)}; repaired (TK)^q/S + K^q/T^{1−q}, q = cL/(1+cL).

    The repaired form is how the two terms of ``stability`` scale.
    """
    x = positive("c", c) * positive("L", L)
    KT, q = count("K", K) * count("T", T), x / (1 + x)
    printed = 1 / count("S", S) + power(K / T, 1 / (1 + x))
    return choose(form, printed, power(KT, q) / S + power(K, q) / power(T, 1 - q))


def start_bias(run: RelaxedRun, *, delta: float, form: Form = "repaired") -> Bound:
    """How far the mean start of a cohort lies from the model, as √E‖mean w_{i,0} − w‖².

    "Its global expectation is still unbiased", says the poster: 0. That is so when all clients take part, for
    then the mean of their last models is the model. Repaired: at most |β|√Δ, reached where all stale copies
    lie on one side; ``delta`` is Δ^t.
    """
    everyone = run.N == run.C or run.beta == 0
    offset = abs(run.beta) * math.sqrt(nonnegative("delta", delta))
    value = 0.0 if printed(form) or everyone else offset
    conditions = (at_least("all clients take part", run.N, run.C),) if printed(form) and run.beta else ()
    return assemble(f"poster, mean start ({form})", {"offset": value}, conditions, {"beta": run.beta})


class PosterCost(NamedTuple):
    """A method's costs per round: Nd floats sent, NKd gradient entries, Cd floats kept, as multiples."""

    method: str
    communication: int
    gradients: int
    storage: int
    storage_ratio_printed: int

    def totals(self, *, N: int, C: int, K: int, d: int) -> dict[str, int]:
        """The counts themselves, for N of C clients, K steps and d parameters."""
        for name, value in (("N", N), ("C", C), ("K", K), ("d", d)):
            count(name, value)
        sizes = {"communication": self.communication * N * d, "gradients": self.gradients * N * K * d}
        return sizes | {"storage": self.storage * C * d}

    def storage_ratio(self, form: Form = "repaired") -> float:
        """Storage against FedAvg; FedCM's is printed 3× beside 2Cd, repaired 2×."""
        return choose(form, self.storage_ratio_printed, self.storage)


COSTS = (
    PosterCost("FedAvg", 1, 1, 1, 1),
    PosterCost("FedAdam", 1, 1, 1, 1),
    PosterCost("FedSAM", 1, 2, 2, 2),
    PosterCost("SCAFFOLD", 2, 1, 3, 3),
    PosterCost("FedDyn", 1, 1, 3, 3),
    PosterCost("FedCM", 2, 1, 2, 3),
    PosterCost("FedInit", 1, 1, 1, 1),
)
"""The poster's cost table. Table 9 of the paper differs: storage 2Cd for FedAdam, SCAFFOLD and FedDyn."""
