"""What FedInit's theorems ask of a run."""

from __future__ import annotations

import math

from fedkeel.theory.bound import Form, printed
from fedkeel.theory.checks import positive
from fedkeel.theory.conditions import Condition, above, at_most, below
from fedkeel.theory.fedinit.constants import (
    BETA_LIMIT,
    BETA_LIMIT_DIVERGENCE,
    BETA_LIMIT_INTERPOLATION,
    RelaxedRun,
    kappa_beta,
    lam,
    zeta,
)
from fedkeel.theory.numeric import ratio


def step_limit(run: RelaxedRun) -> float:
    """The largest η of Theorem 1 for this K, N, L and β; 0 where β is out of range."""
    return min(_local_limit(run), 1 / (run.N * run.K * run.L), _descent_limit(run))


def variance_conditions(
    run: RelaxedRun, form: Form = "repaired", dropped: float | None = None
) -> tuple[Condition, ...]:
    """Theorems 1, 4, 17: the range of β, three limits of η, λ > 0, participation, the dropped product."""
    return (
        below("|β| < 0.0842", abs(run.beta), BETA_LIMIT, "κ_β = 1/(1−141β²) must be positive"),
        at_most("η ≤ 1/(NKL)", run.eta, 1 / (run.N * run.K * run.L)),
        at_most("η ≤ 1/(2KL(1+78β²κ_βK²/N))", run.eta, _descent_limit(run)),
        at_most("η ≤ 1/(L√(6(K−1)(2K−1)))", run.eta, _local_limit(run), "Lemma 21"),
        above("λ > 0", lam(run, form), 0, "lower η or β, or raise N"),
        *participation(run, form),
        dropped_product(run, dropped),
    )


def interpolation_conditions(
    run: RelaxedRun, a: float, b: float, form: Form = "repaired", dropped: float | None = None
) -> tuple[Condition, ...]:
    """Theorems 6, 9, 19: the range of β, the limits of η, ζ > 0, participation, the dropped product."""
    positive("a", a)
    positive("b", b)
    local = ratio(1, 2 * a * math.sqrt((2 * run.K - 1) * (run.K - 1)) * run.L)
    return (
        below("|β| < 0.160", abs(run.beta), BETA_LIMIT_INTERPOLATION, "γ_β = 1/(1−39β²) must be positive"),
        at_most("η ≤ 1/(aKL)", run.eta, 1 / (a * run.K * run.L)),
        at_most("η ≤ 1/(KL)", run.eta, 1 / (run.K * run.L)),
        at_most("η ≤ 1/(2aL√((2K−1)(K−1)))", run.eta, local, "Lemma 24"),
        above("ζ > 0", zeta(run, a, b, form), 0, "lower η, or the model is far from interpolation"),
        *participation(run, form),
        dropped_product(run, dropped),
    )


def divergence_range(run: RelaxedRun) -> Condition:
    """Theorem 17's own range of β."""
    return below("|β| < 0.0727", abs(run.beta), BETA_LIMIT_DIVERGENCE, "C_β = 1/(1−189β²) must be positive")


def participation(run: RelaxedRun, form: Form = "repaired") -> tuple[Condition, ...]:
    """Printed: K > 1 and 1 < N < C. The lemmas themselves only need N ≤ C."""
    if not printed(form):
        return ()
    return (
        above("K > 1", run.K, 1),
        above("N > 1", run.N, 1),
        below("N < C", run.N, run.C),
    )


def dropped_product(run: RelaxedRun, measured: float | None = None) -> Condition:
    """The proofs drop β⟨∇f(x), x − mean w_i⟩, zero only when all clients take part (or β = 0).

    ``measured`` is its mean over the rounds of a run; at 0 or less, dropping it did no harm. Its cost in
    Theorem 1's bound would be measured/(ληK).
    """
    name = "β⟨∇f, x − mean w_i⟩ = 0"
    if run.beta == 0 or run.N == run.C:
        return Condition(name, True, 0.0, "all clients take part" if run.beta else "β = 0")
    why = f"N = {run.N} of C = {run.C} clients take part"
    if measured is None:
        return Condition(name, False, math.inf, f"{why}; its size was not measured")
    return Condition(
        name, measured <= 0, 0.0 if measured <= 0 else math.inf, f"{why}; measured {measured:.6g}"
    )


def _local_limit(run: RelaxedRun) -> float:
    return ratio(1, math.sqrt(6 * (run.K - 1) * (2 * run.K - 1)) * run.L)


def _descent_limit(run: RelaxedRun) -> float:
    """1/(2KL(1+78β²κ_βK²/N)); the K² is the paper's, the algebra needs none and so the limit is cautious."""
    relaxed = 78 * run.beta**2 * kappa_beta(run.beta) * run.K**2 / run.N if run.beta else 0.0
    return 1 / (2 * run.K * run.L * (1 + relaxed))
