"""FedInit's generalisation bounds by uniform stability (Theorems 12, 15), and the excess risk they add to.

Both take the learning rate η = c/t in round t. Uniform stability here replaces one sample of one client.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedkeel.theory.bound import Bound, Form, assemble, printed, vacuous
from fedkeel.theory.checks import count, finite, nonnegative, positive
from fedkeel.theory.conditions import Condition, above, at_least, at_most
from fedkeel.theory.numeric import exp, expm1, power


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """N of C clients per round, S samples each, K local steps, T rounds, the rate c of η = c/t.

    ``L_G`` is the Lipschitz constant of the loss at the end of the run.
    """

    N: int
    C: int
    S: int
    K: int
    T: int
    c: float
    L_G: float

    def __post_init__(self) -> None:
        for name in ("N", "C", "S", "K", "T"):
            count(name, getattr(self, name))
        if self.N > self.C:
            raise ValueError(f"N is {self.N} of C = {self.C} clients: give N <= C")
        positive("c", self.c)
        nonnegative("L_G", self.L_G)


def beta_limit_at(t: int, s: Sampling, L: float) -> float:
    """Theorem 12's largest β in round t: ½(φ(t−1)/φ(t) − 1), φ(t) = (1 + cL/t)^K. It shrinks like 1/t²."""
    if count("t", t) < 2:
        return math.inf
    x = positive("L", L) * s.c
    return expm1(s.K * (math.log1p(x / (t - 1)) - math.log1p(x / t))) / 2


def theorem_12(
    s: Sampling, *, beta: float, L: float, U: float, sigma_l: float, form: Form = "repaired"
) -> Bound:
    """Theorem 12: the generalisation error for smooth losses of at most ``U``.

    σ_l is a standard deviation here, not a variance.

    With q = cKL and A = 2σ_lL_G/((1+2β)L) the error is at most [NUK·t0 + A(T/t0)^q]/(CS) for any round t0.
    Printed: both terms made equal, t0 = (A/(NUK))^{1/(1+q)}·T^{q/(1+q)}, hence
    (2/(CS))·A^{1/(1+q)}·(NUKT)^{q/(1+q)}. Repaired: the same t0 kept within [1, T], the rounds there are.

    (1+2β) in the divisor is no free gain: the proof needs β ≤ ``beta_limit_at`` in every round, so a constant
    β fails as T grows. β < 0 is outside the proof. (Its sum over 1/τ is bounded by an integral from t0 where
    t0 − 2 is due; not repaired here.)
    """
    finite("beta", beta)
    q = s.c * s.K * positive("L", L)
    conditions = (
        at_least("β ≥ 0", beta, 0, "the proof takes β for |β|"),
        at_most(
            "2β ≤ φ(T−1)/φ(T) − 1", beta, beta_limit_at(s.T, s, L), "β must shrink with t, about as 1/t²"
        ),
    )
    name = f"Theorem 12 ({form})"
    if 1 + 2 * beta <= 0:
        return vacuous(name, conditions, {"q": q})
    A = 2 * nonnegative("sigma_l", sigma_l) * s.L_G / ((1 + 2 * beta) * L)
    first = s.N * positive("U", U) * s.K
    t0 = power(A / first, 1 / (1 + q)) * power(s.T, q / (1 + q))
    inside = (at_least("t0 ≥ 1", t0, 1, "the first round"), at_most("t0 ≤ T", t0, s.T))
    if printed(form):
        half = power(A, 1 / (1 + q)) * power(first * s.T, q / (1 + q)) / (s.C * s.S)
        terms = {"before t0": half, "after t0": half}
        return assemble(name, terms, (*conditions, *inside), {"t0": t0, "q": q, "A": A})
    t0 = min(max(t0, 1.0), float(s.T))
    terms = {"before t0": first * t0 / (s.C * s.S), "after t0": A * power(s.T / t0, q) / (s.C * s.S)}
    return assemble(name, terms, conditions, {"t0": t0, "q": q, "A": A})


def theorem_15(s: Sampling, *, betas: Sequence[float], a: float, b: float, form: Form = "repaired") -> Bound:
    """Theorem 15 (interpolation): e^{2Σ_{t≥1} β^t}·abcL_G²K/(2β^0·CS) for β^0, …, β^T. Both forms alike.

    The proof asks that β^t decays and that η_t/β^t does not grow; with η = c/t (and c in round 0) that is
    tβ^t ≥ (t−1)β^{t−1}, so β^t ≥ β^1/t and Σβ^t grows like β^1·log T at least: the constant bound on the
    sum that Remark 16 wants cannot be had, and the rate is T^{2β}·K/(CS) at best. β^0 = 0 makes the bound
    infinite: it does not contain FedAvg. (The proof also keeps half of Lemma 30's 2abηL_G.)
    """
    printed(form)
    scale = positive("a", a) * positive("b", b) * s.c * s.L_G**2 * s.K / (s.C * s.S)
    if len(betas) != s.T + 1:
        raise ValueError(f"betas has {len(betas)} entries: give T + 1 = {s.T + 1}, β^0 to β^T")
    for t, value in enumerate(betas):
        nonnegative(f"betas[{t}]", value)
    total = math.fsum(betas[1:])
    conditions = (above("β^0 > 0", betas[0], 0, "the bound divides by it"), *_schedule_conditions(betas))
    constants = {"sum_beta": total, "beta_0": betas[0]}
    name = f"Theorem 15 ({form})"
    if betas[0] <= 0:
        return vacuous(name, conditions, constants)
    return assemble(name, {"stability": exp(2 * total) * scale / (2 * betas[0])}, conditions, constants)


def excess_risk(generalisation: Bound, optimisation: Bound) -> Bound:
    """Section 4.1: E_E = E_G + E_O, the sum of a generalisation and an optimisation bound."""
    terms = {f"E_G/{k}": v for k, v in generalisation.terms.items()}
    terms |= {f"E_O/{k}": v for k, v in optimisation.terms.items()}
    conditions = generalisation.conditions + optimisation.conditions
    name = f"excess risk: {generalisation.name} + {optimisation.name}"
    constants = {**generalisation.constants, **optimisation.constants}
    if math.isinf(generalisation.value) or math.isinf(optimisation.value):
        return Bound(math.inf, terms, conditions, constants, name)
    return assemble(name, terms, conditions, constants)


def _schedule_conditions(betas: Sequence[float]) -> tuple[Condition, Condition]:
    """β^t does not grow, and tβ^t does not shrink (t read as 1 in rounds 0 and 1)."""
    grows = max((betas[t] / betas[t - 1] for t in range(1, len(betas)) if betas[t - 1] > 0), default=0.0)
    weighted = [max(t, 1) * beta for t, beta in enumerate(betas)]
    pairs = [(weighted[t - 1], weighted[t]) for t in range(1, len(betas)) if weighted[t - 1] > 0]
    shrinks = max((before / after if after > 0 else math.inf for before, after in pairs), default=0.0)
    slack = 1 + 1e-12  # a schedule computed as c/t sits on the edge
    return (
        at_most("β^t decays", grows, slack, "β^t ≤ β^{t−1} in every round"),
        at_most("η_t/β^t does not grow", shrinks, slack, "tβ^t ≥ (t−1)β^{t−1}, so Σβ^t cannot stay bounded"),
    )
