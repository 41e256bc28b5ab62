"""FedInit's bounds on the divergence Δ^t = mean ‖w_i − w^t‖² over all C clients: Theorems 17 and 19.

As printed they hold when all clients take part. With N < C the copies of the others are stale, C/N rounds old
on average, and Δ is larger by about (C/N)²; the repaired forms take the constants of ``participation``.
"""

from __future__ import annotations

from fedkeel.theory.bound import Bound, Form, assemble, vacuous
from fedkeel.theory.fedinit.conditions import divergence_range, interpolation_conditions, variance_conditions
from fedkeel.theory.fedinit.constants import (
    RelaxedRun,
    c_beta,
    divergence_slope,
    gamma_beta,
    j_beta,
    kappa,
    lam,
    sigma,
    zeta,
)
from fedkeel.theory.fedinit.participation import interpolation_recursion


def theorem_17(
    run: RelaxedRun,
    *,
    sigma_l2: float,
    sigma_g2: float,
    dropped: float | None = None,
    form: Form = "repaired",
) -> Bound:
    """Theorem 17: the mean of Δ^t over T rounds ≤ 804ηC_βKD/(λT) + η²J_βKσ.

    J_β is printed with 132 and repaired with 135; λ and κ inside it are those of the form. For N < C the
    repaired 804, 135 and C_β are those of stale copies. Needs |β| < 0.0727 at N = C.
    """
    noise, name = sigma(run.K, sigma_l2, sigma_g2), f"Theorem 17 ({form})"
    strength, c = lam(run, form), c_beta(run.beta, run.N, run.C, form)
    conditions = (divergence_range(run, form), *variance_conditions(run, form, dropped))
    constants = {"lambda": strength, "C_beta": c, "J_beta": j_beta(run, form), "sigma": noise}
    constants["kappa"] = kappa(run, form)
    if strength <= 0 or not conditions[0].holds:
        return vacuous(name, conditions, constants)
    slope = divergence_slope(run, form)
    terms = {
        "initial": run.eta * slope * c * run.K * run.D / (strength * run.T),
        "noise": run.eta**2 * constants["J_beta"] * run.K * noise,
    }
    return assemble(name, terms, conditions, constants)


def theorem_19(
    run: RelaxedRun, *, a: float, b: float, dropped: float | None = None, form: Form = "repaired"
) -> Bound:
    """Theorem 19 (interpolation): the mean of Δ^t ≤ η·R_βK·D/(2μβ²ζT) = 114γ_βa²b²ηKD/(ζT).

    R_β is the printed one here (a single γ_β), which is also what the appendix derives; written out, μ and β
    cancel and β = 0 needs no limit. Repaired: the ζ of the form, and for N < C Lemma 26's 12A + 78p for 114.
    """
    strength, name = zeta(run, a, b, form), f"Theorem 19 ({form})"
    g = gamma_beta(run.beta, run.N, run.C, form)
    conditions = interpolation_conditions(run, a, b, form, dropped)
    constants = {"zeta": strength, "gamma_beta": g, "a": a, "b": b}
    if strength <= 0 or not conditions[0].holds:
        return vacuous(name, conditions, constants)
    slope = interpolation_recursion(run.N, run.C, form).gradient
    initial = slope * g * (a * b) ** 2 * run.eta * run.K * run.D / (strength * run.T)
    return assemble(name, {"initial": initial}, conditions, constants)
