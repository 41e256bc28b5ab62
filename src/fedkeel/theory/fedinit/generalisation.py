"""FedInit's generalisation bounds by uniform stability (Theorems 12, 15), and the excess risk they add to.

Both take the learning rate η = c/t in round t (c in round 0). Uniform stability here replaces one sample of
one client; δ is the mean distance of the two runs' local models, the δ_k^t of Table 11 (Lemmas 28 to 30):

    δ_{k+1} ≤ (1 + ηL)δ_k + 2ηs/(CS)  within a round,     δ_0^t ≤ (1 + 2β)δ_K^{t−1}  between two,

where 2s bounds the difference of two samples' gradients at one model: s is ``sample_spread`` in Theorem 12,
the largest distance of a sample's gradient from its client's; abL_G in Theorem 15. The paper has σ_l there,
a standard deviation, which bounds that difference on average only and is no guarantee: a sample that stands
apart from 99 others has a tenth of its distance for σ_l (a test has the run that exceeds that bound).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedkeel.theory.bound import Bound, Form, assemble, printed, vacuous
from fedkeel.theory.checks import count, finite, nonnegative, positive
from fedkeel.theory.conditions import Condition, above, at_least, at_most, below
from fedkeel.theory.numeric import exp, expm1, harmonic, power


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """N of C clients per round, S samples each, K local steps, T rounds, the rate c of η = c/t.

    ``L_G`` is the Lipschitz constant of the loss at the end of the run; a local step takes ``B`` samples (one
    in the paper; a step of B meets a given sample B times as often, and moves by 1/B of it).
    """

    N: int
    C: int
    S: int
    K: int
    T: int
    c: float
    L_G: float
    B: int = 1

    def __post_init__(self) -> None:
        for name in ("N", "C", "S", "K", "T", "B"):
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
    s: Sampling, *, beta: float, L: float, U: float, sample_spread: float, form: Form = "repaired"
) -> Bound:
    """Theorem 12: the generalisation error for smooth losses of at most ``U``.

    With q = cKL and A = 2sL_G/((1+2β)L) the error is at most [NUK·t0 + A·g(t0)]/(CS) for any round t0,
    where g is the growth from round t0 on. Printed: g = (T/t0)^q and both terms made equal,
    t0 = (A/(NUK))^{1/(1+q)}·T^{q/(1+q)}, hence (2/(CS))·A^{1/(1+q)}·(NUKT)^{q/(1+q)}. Repaired: the sum
    Σ_{τ=t0−1}^{T−1} 1/τ itself instead of an integral from t0, g = e^{q·Σ}, with t0 a whole round near the
    printed one. s is ``sample_spread``, the largest distance of a sample's gradient from its client's, where
    the paper has σ_l: see the top of this file.

    (1+2β) in the divisor is no free gain: the proof needs β ≤ ``beta_limit_at`` in every round, so a constant
    β fails as T grows. β < 0 is outside the proof.
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
    A = 2 * nonnegative("sample_spread", sample_spread) * s.L_G / ((1 + 2 * beta) * L)
    first = s.N * positive("U", U) * s.K * (1 if printed(form) else s.B)
    t0 = power(A / first, 1 / (1 + q)) * power(s.T, q / (1 + q))
    if printed(form):
        inside = (at_least("t0 ≥ 1", t0, 1, "the first round"), at_most("t0 ≤ T", t0, s.T))
        half = power(A, 1 / (1 + q)) * power(first * s.T, q / (1 + q)) / (s.C * s.S)
        terms = {"before t0": half, "after t0": half}
        return assemble(name, terms, (*conditions, *inside), {"t0": t0, "q": q, "A": A})
    start = min(_rounds_near(t0, s.T), key=lambda r: first * r + A * _growth(q, r, s.T))
    after = A * _growth(q, start, s.T) if A else 0.0
    terms = {"before t0": first * start / (s.C * s.S), "after t0": after / (s.C * s.S)}
    return assemble(name, terms, conditions, {"t0": float(start), "q": q, "A": A})


def stability_distance(s: Sampling, *, betas: Sequence[float], L: float, spread: float) -> float:
    """δ_K^T of Table 11: the mean distance of the local models after round T of the recursion above.

    ``spread`` is the s of the recursion; β^0, …, β^T are the relaxation's coefficients. Copies that stayed
    out of a round are older and no further apart, so the same holds when N < C.
    """
    _check_betas(s, betas)
    source, total = 2 * nonnegative("spread", spread) / (s.C * s.S * positive("L", L)), 0.0
    for t, beta in enumerate(betas):
        growth = expm1(s.K * math.log1p(s.c * L / max(t, 1)))
        total = (1 + growth) * (1 + 2 * beta) * total + growth * source if total or source else 0.0
    return math.inf if math.isnan(total) else total


def theorem_15(
    s: Sampling, *, betas: Sequence[float], a: float, b: float, L: float, form: Form = "repaired"
) -> Bound:
    """Theorem 15 (interpolation) for β^0, …, β^T: e^{2Σ_{t≥1} β^t}·abcL_G²K/(2β^0·CS) as printed.

    B.3.2 keeps half of Lemma 30's 2abηL_G and drops the growth 1 + ηL of steps that take the same sample; it
    also asks that β^t decays and that η_t/β^t does not grow; with η = c/t that is tβ^t ≥ (t−1)β^{t−1}, so
    β^t ≥ β^1/t and Σβ^t grows like β^1·log T at least: the constant bound on the sum that Remark 16 wants
    cannot be had. β^0 = 0 makes it infinite, so that it does not contain FedAvg. Repaired: L_G times
    ``stability_distance`` with s = abL_G, which needs neither condition and contains FedAvg.
    """
    scale = positive("a", a) * positive("b", b) * s.L_G
    _check_betas(s, betas)
    constants = {"sum_beta": math.fsum(betas[1:]), "beta_0": betas[0]}
    name = f"Theorem 15 ({form})"
    if not printed(form):
        value = s.L_G * stability_distance(s, betas=betas, L=L, spread=scale) if s.L_G else 0.0
        finite_growth = below("growth < ∞", value, math.inf, "lower c, K, T or β")
        return assemble(name, {"stability": value}, (finite_growth,), constants)
    conditions = (above("β^0 > 0", betas[0], 0, "the bound divides by it"), *_schedule_conditions(betas))
    if betas[0] <= 0:
        return vacuous(name, conditions, constants)
    value = exp(2 * constants["sum_beta"]) * scale * s.c * s.L_G * s.K / (2 * betas[0] * s.C * s.S)
    return assemble(name, {"stability": value}, conditions, constants)


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


def _check_betas(s: Sampling, betas: Sequence[float]) -> None:
    if len(betas) != s.T + 1:
        raise ValueError(f"betas has {len(betas)} entries: give T + 1 = {s.T + 1}, β^0 to β^T")
    for t, value in enumerate(betas):
        nonnegative(f"betas[{t}]", value)


def _growth(q: float, start: float, T: float) -> float:
    """e^{q·Σ 1/τ} over τ from start − 1 to T − 1, with 1 for 1/0: the first round has the rate c."""
    if start <= 1:
        return exp(q * (1 + harmonic(T - 1)))
    return exp(q * (harmonic(T - 1) - harmonic(start - 2)))


def _rounds_near(t0: float, T: int) -> list[int]:
    """Whole rounds around a wished one, within 1 and T."""
    if not math.isfinite(t0):
        return [T]
    around = (math.floor(t0), math.ceil(t0), math.ceil(t0) + 1, math.ceil(t0) + 2)
    return sorted({min(max(one, 1), T) for one in around})


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
