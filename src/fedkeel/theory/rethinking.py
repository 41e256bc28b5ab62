"""Rethinking (FedDyn → FedAvg), Proposition 1: when the server's correction costs more than it brings.

For convex, L-smooth client losses and FedDyn's coefficient α,

    D_T = (ζ + η·Σ_{t<T} C_t) / T,   ζ = (1 + L/α)·Φ_0/κ_0,   η = 1/(2α) + L/(2α²)

bounds the mean suboptimality of the models θ^0..θ^{T−1} that are sent out; FedDyn stops paying at the first T
with D_{T+1} ≥ D_T, that is T·η·(C_T − mean of C_0..C_{T−1}) ≥ ζ. The statement is sound, so nothing here
has two forms.

κ_0, Φ_0 come from FedDyn's descent lemma, re-derived here. With G = ℓ(γ) − ℓ*, ε = mean ‖θ_k⁺ − γ‖², p = P/m:

- ‖γ⁺−θ*‖² ≤ ‖γ−θ*‖² − (2/α)G + (1 + L/α)ε          (convexity, smoothness, the optimality of θ_k⁺)
- C⁺ ≤ (1−p)C + 2L²p·ε + 4Lp·G
- (1 − nL²/α²)ε ≤ (2n/α²)(C + L·G)                    (a square of n terms; ‖h‖² ≤ C)

Add κ times the second and q times the third; ε and C drop out for κp = 2nq/α² and q(1 − 5nL²/α²) = 1 + L/α,
which leaves κ_0·G ≤ Φ − Φ⁺ with Φ = ‖γ−θ*‖² + κC,

    κ = (2n/p)·(α+L) / (α(α² − 5nL²)),   κ_0 = (2/α)·(α² − 5nαL − 10nL²) / (α² − 5nL²),

positive for α > (5n + √(25n²+40n))/2·L. The default n = 5 gives the specification's α > 26.9·L (FedDyn's own
paper is not among ours to compare); the derivation above needs four terms only, which would give 21.8·L.
Values of α in use (0.01 to 0.1) meet neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedkeel.theory.bound import Bound, assemble, vacuous
from fedkeel.theory.checks import count, nonnegative, positive
from fedkeel.theory.conditions import Condition, above, at_most

FEDDYN_TERMS = 5
SOLVED = 1e-9
"""A residual that counts as zero."""


class SwitchCurve(NamedTuple):
    """Rows of the switching rule. ``round`` is the first T that meets it, or None.

    ``gain[T−1]`` is T·η·(C_T − mean of C_0..C_{T−1}) for T = 1, 2, …
    """

    gain: tuple[float, ...]
    zeta: float
    round: int | None


def client_gradient_gap(gradients: Sequence[Sequence[float]], at_optimum: Sequence[Sequence[float]]) -> float:
    """C_t, equation (3): the mean over clients of ‖∇L_k(θ_k) − ∇L_k(θ*)‖²."""
    if len(gradients) != len(at_optimum) or not gradients:
        sizes = f"gradients has {len(gradients)} clients, at_optimum {len(at_optimum)}"
        raise ValueError(f"{sizes}: give one of each per client")
    pairs = zip(gradients, at_optimum, strict=True)
    return math.fsum(math.dist(g, o) ** 2 for g, o in pairs) / len(gradients)


def eta(L: float, alpha: float) -> float:
    """η = 1/(2α) + L/(2α²), equation (4)."""
    nonnegative("L", L)
    positive("alpha", alpha)
    return 1 / (2 * alpha) + L / (2 * alpha**2)


def alpha_threshold(L: float, terms: int = FEDDYN_TERMS) -> float:
    """The α above which κ_0 > 0: 26.86·L for five terms (the 26.9·L of the specification)."""
    n = count("terms", terms, least=4)
    return nonnegative("L", L) * (5 * n + math.sqrt(25 * n**2 + 40 * n)) / 2


def alpha_condition(L: float, alpha: float, terms: int = FEDDYN_TERMS) -> Condition:
    """Whether α is large enough for Proposition 1 to have a positive κ_0."""
    limit = alpha_threshold(L, terms)
    why = "κ_0 > 0; the α in practical use never meet this"
    return above("α > 26.9·L" if terms == FEDDYN_TERMS else "κ_0 > 0", positive("alpha", alpha), limit, why)


def kappa_0(L: float, alpha: float, terms: int = FEDDYN_TERMS) -> float:
    """κ_0 = (2/α)(α² − 5nαL − 10nL²)/(α² − 5nL²); 0 where α is too small for the lemma."""
    limit = alpha_threshold(L, terms)
    if positive("alpha", alpha) <= limit:
        return 0.0
    x = L / alpha  # the numerator as a product of its roots: positive exactly above the threshold
    other = 1 + 10 * terms * x * (L / limit) if L else 1.0
    return 2 / alpha * (alpha - limit) / alpha * other / (1 - 5 * terms * x**2)


def kappa(L: float, alpha: float, *, clients: int, cohort: int, terms: int = FEDDYN_TERMS) -> float:
    """κ = 2n·(m/P)·(α+L)/(α(α² − 5nL²)), the weight of C in Φ; inf where α² ≤ 5nL²."""
    count("cohort", cohort)
    if count("clients", clients) < cohort:
        raise ValueError(f"cohort is {cohort} of {clients} clients: give at most {clients}")
    positive("alpha", alpha)
    n, x = count("terms", terms, least=4), nonnegative("L", L) / alpha
    rest = 1 - 5 * n * x**2
    return 2 * n * clients / cohort * (1 + x) / (alpha**2 * rest) if rest > 0 else math.inf


def phi_0(distance2: float, C_0: float, kappa_: float) -> float:
    """Φ_0 = ‖γ^0 − θ*‖² + κ·C_0."""
    nonnegative("distance2", distance2)
    nonnegative("C_0", C_0)
    return distance2 + (kappa_ * C_0 if C_0 > 0 else 0.0)


def zeta(L: float, alpha: float, Phi_0: float, terms: int = FEDDYN_TERMS) -> float:
    """ζ = (1 + L/α)·Φ_0/κ_0; inf where κ_0 is not positive (α at most 26.9·L)."""
    k0 = kappa_0(L, alpha, terms)
    if not Phi_0 >= 0:
        raise ValueError(f"Phi_0 is {Phi_0}: give 0 or more (a squared distance plus κ·C_0)")
    return (1 + L / alpha) * Phi_0 / k0 if k0 > 0 else math.inf


def suboptimality(
    C: Sequence[float],
    *,
    L: float,
    alpha: float,
    Phi_0: float,
    residual: float | None = None,
    terms: int = FEDDYN_TERMS,
) -> Bound:
    """D_T of equation (4) for C_0..C_{T−1}: a bound on the mean of ℓ(θ^t) − ℓ(θ*) over T rounds.

    The proof takes θ_k for the exact minimiser of a client's regularised loss and h_k for its gradient there:
    ``residual`` is the largest ‖∇L_k(θ_k) − h_k‖ after a turn (None: not known), zero up to rounding where
    local work is long enough. Before a client's first turn h_k is 0, so its share of C_t is ‖∇L_k(θ*)‖².
    """
    T = len(_sequence(C, least=1))
    z, e = zeta(L, alpha, Phi_0, terms), eta(L, alpha)
    conditions = (alpha_condition(L, alpha, terms), _solved(residual))
    constants = {"zeta": z, "eta": e, "kappa_0": kappa_0(L, alpha, terms), "T": float(T)}
    if constants["kappa_0"] <= 0:
        return vacuous("Proposition 1, D_T", conditions, constants)
    terms_ = {"start": z / T, "correction": e * math.fsum(C) / T}
    return assemble("Proposition 1, D_T", terms_, conditions, constants)


def _solved(residual: float | None) -> Condition:
    name = "clients minimise their regularised loss"
    if residual is None:
        return Condition(name, False, math.inf, "how far they stay from it was not measured")
    return at_most(name, nonnegative("residual", residual), SOLVED, "‖∇L_k(θ_k) − h_k‖ after a turn")


def switch_curve(
    C: Sequence[float], *, L: float, alpha: float, zeta_: float | None, warm_up: int = 0
) -> SwitchCurve:
    """Proposition 1 on a given sequence C_0, C_1, …: the curve always, a round only for a given ζ.

    ``C`` may be the server's ‖h^t‖² in place of C_t: the proof uses no more than ‖h‖² ≤ C_t. That norm
    rises at first, so rounds T ≤ ``warm_up`` are never chosen. ``zeta_=None`` reports the curve alone.
    """
    values, e = _sequence(C, least=2), eta(L, alpha)
    count("warm_up", warm_up, least=0)
    if zeta_ is not None and not zeta_ >= 0:
        raise ValueError(f"zeta_ is {zeta_}: give 0 or more, or None for the curve alone")
    gains, total = [], 0.0
    for T in range(1, len(values)):
        total += values[T - 1]
        gains.append(e * (T * values[T] - total))
    limit = math.inf if zeta_ is None else zeta_
    hits = (T for T, gain in enumerate(gains, 1) if warm_up < T and gain >= limit)
    return SwitchCurve(tuple(gains), limit, next(hits, None))


def _sequence(C: Sequence[float], least: int) -> Sequence[float]:
    if len(C) < least:
        raise ValueError(f"C has {len(C)} entries: give {least} or more, starting with C_0")
    for t, value in enumerate(C):
        nonnegative(f"C[{t}]", value)
    return C
