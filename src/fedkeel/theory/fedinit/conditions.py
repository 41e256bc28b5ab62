"""What FedInit's theorems ask of a run."""

from __future__ import annotations

import math

from fedkeel.theory.bound import Form, printed
from fedkeel.theory.checks import positive
from fedkeel.theory.conditions import Condition, above, at_most, below
from fedkeel.theory.fedinit.constants import (
    RelaxedRun,
    beta_limit,
    beta_limit_divergence,
    beta_limit_interpolation,
    kappa_beta,
    lam,
    relaxation,
    zeta,
)
from fedkeel.theory.fedinit.participation import recursion
from fedkeel.theory.numeric import ratio


def step_limit(run: RelaxedRun) -> float:
    """The largest η of Theorem 1 for this K, N, C, L and β; 0 where β is out of range."""
    return min(local_limit(run), 1 / (run.N * run.K * run.L), _descent_limit(run, "repaired"))


def variance_conditions(
    run: RelaxedRun, form: Form = "repaired", dropped: float | None = None
) -> tuple[Condition, ...]:
    """Theorems 1, 4, 17: the range of β, three limits of η, λ > 0, participation, the dropped product."""
    return (
        _range(run, form, beta_limit(run.N, run.C, form), "√(r/M)", of=("κ_β", 141)),
        at_most("η ≤ 1/(NKL)", run.eta, 1 / (run.N * run.K * run.L)),
        _descent_condition(run, form),
        at_most("η ≤ 1/(L√(6(K−1)(2K−1)))", run.eta, local_limit(run), "Lemma 21"),
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
    return (
        _range(run, form, beta_limit_interpolation(run.N, run.C, form), "√(r/(27p+4A))", of=("γ_β", 39)),
        at_most("η ≤ 1/(aKL)", run.eta, 1 / (a * run.K * run.L)),
        at_most("η ≤ 1/(KL)", run.eta, 1 / (run.K * run.L)),
        at_most("η ≤ 1/(2aL√((2K−1)(K−1)))", run.eta, interpolation_limit(run, a), "Lemma 24"),
        above("ζ > 0", zeta(run, a, b, form), 0, "lower η, or the model is far from interpolation"),
        *participation(run, form),
        dropped_product(run, dropped),
    )


def divergence_range(run: RelaxedRun, form: Form = "repaired") -> Condition:
    """Theorem 17's own range of β."""
    return _range(run, form, beta_limit_divergence(run.N, run.C, form), "√(r/(M+16aA))", of=("C_β", 189))


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

    ``measured`` is its mean over the rounds of a run (Theorems 1, 6, 17, 19) or its largest value (Theorems 4
    and 9, which weigh the rounds); at 0 or less, dropping it did no harm. Its cost in Theorem 1's bound would
    be measured/(ληK).
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


def local_limit(run: RelaxedRun) -> float:
    """Lemma 21's largest η."""
    return ratio(1, math.sqrt(6 * (run.K - 1) * (2 * run.K - 1)) * run.L)


def interpolation_limit(run: RelaxedRun, a: float) -> float:
    """Lemma 24's largest η."""
    return ratio(1, 2 * positive("a", a) * math.sqrt((2 * run.K - 1) * (run.K - 1)) * run.L)


def _range(run: RelaxedRun, form: Form, limit: float, formula: str, *, of: tuple[str, int]) -> Condition:
    """The range of |β|, by its number where all clients take part and by its formula where some do."""
    symbol, factor = of
    if printed(form) or run.N == run.C:
        why = f"{symbol} = 1/(1−{factor}β²) must be positive"
        return below(f"|β| < {limit:#.3g}", abs(run.beta), limit, why)
    why = f"{symbol} must be positive; a client's copy is C/N = {run.C / run.N:.3g} rounds old on average"
    return below(f"|β| < {formula}", abs(run.beta), limit, why)


def _descent_condition(run: RelaxedRun, form: Form) -> Condition:
    limit = _descent_limit(run, form)
    if printed(form) or run.N == run.C:
        return at_most("η ≤ 1/(2KL(1+78β²κ_βK²/N))", run.eta, limit)
    return at_most("η ≤ 1/(2KL(1+(12/N+1)β²κ_β·2aA))", run.eta, limit, "A = 2p+2/p−1, p = N/C")


def _descent_limit(run: RelaxedRun, form: Form) -> float:
    """1/(2KL(1+78β²κ_βK²/N)); the K² is the paper's, the algebra needs none and so the limit is cautious."""
    if not run.beta:
        return 1 / (2 * run.K * run.L)
    if printed(form) or run.N == run.C:
        extra = 78 * run.beta**2 * kappa_beta(run.beta) * run.K**2 / run.N
    else:
        extra = relaxation(run) * recursion(run.N, run.C).total
    return 1 / (2 * run.K * run.L * (1 + extra))
