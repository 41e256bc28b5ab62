"""FedInit's optimisation bounds: Theorems 1, 4 (bounded variance), 6, 9 (interpolation).

At β = 0 all of them are FedAvg's. The Polyak-Łojasiewicz constant μ is the paper's, μ(f − f*) ≤ ‖∇f‖²; the
poster writes 2μ for it.
"""

from __future__ import annotations

from fedkeel.theory.bound import Bound, Form, assemble, choose, printed, vacuous
from fedkeel.theory.checks import nonnegative, positive
from fedkeel.theory.conditions import at_most
from fedkeel.theory.fedinit.conditions import divergence_range, interpolation_conditions, variance_conditions
from fedkeel.theory.fedinit.constants import (
    RelaxedRun,
    gamma_beta,
    kappa,
    kappa_beta,
    lam,
    r_beta,
    relaxation,
    sigma,
    zeta,
)
from fedkeel.theory.fedinit.divergence import theorem_17
from fedkeel.theory.numeric import exp


def theorem_1(
    run: RelaxedRun,
    *,
    sigma_l2: float,
    sigma_g2: float,
    delta_T: float = 0.0,
    dropped: float | None = None,
    form: Form = "repaired",
) -> Bound:
    """Theorem 1: the mean of E‖∇f(w^t)‖² over T rounds.

    D/(ληKT) + ηκLσ/(λN) − 13β²κ_βL·Δ_T/(ληNKT). Equation (3) prints L² in the last term, the appendix
    L (repaired); κ and λ are repaired too, see ``constants``; for N < C the 13/N is 12/N + 1. ``delta_T`` is
    the measured divergence at the end (0 leaves the negative term out); ``dropped`` see ``dropped_product``.
    """
    noise, name = sigma(run.K, sigma_l2, sigma_g2), f"Theorem 1 ({form})"
    nonnegative("delta_T", delta_T)
    strength, k = lam(run, form), kappa(run, form)
    kb = kappa_beta(run.beta, run.N, run.C, form)
    conditions = variance_conditions(run, form, dropped)
    constants = {"lambda": strength, "kappa": k, "kappa_beta": kb, "sigma": noise}
    if strength <= 0:
        return vacuous(name, conditions, constants)
    scale = 1 / (strength * run.eta * run.K * run.T)
    smooth = choose(form, run.L**2, run.L)
    terms = {
        "initial": run.D * scale,
        "noise": run.eta * k * run.L * noise / (strength * run.N),
        "divergence": -relaxation(run, form) * smooth * delta_T * scale,
    }
    return assemble(name, terms, conditions, constants)


def theorem_4(
    run: RelaxedRun,
    *,
    mu: float,
    sigma_l2: float,
    sigma_g2: float,
    dropped: float | None = None,
    form: Form = "repaired",
) -> Bound:
    """Theorem 4: E[f(w^T) − f(w*)] ≤ e^{−λμηKT}D + ηκLσ/(λμN) + O(η/T + η²).

    As printed the last part has no constant and is left out. Repaired, it is the proof's
    (13β²κ_βL/N)·λμηKT times the mean divergence of Theorem 17: zero at β = 0, growing with T at a fixed η.
    ``dropped`` is the largest value of the dropped product here, since the rounds have different weights.
    """
    noise, name = sigma(run.K, sigma_l2, sigma_g2), f"Theorem 4 ({form})"
    strength, k = lam(run, form), kappa(run, form)
    pull = strength * positive("mu", mu) * run.eta * run.K
    conditions = (*variance_conditions(run, form, dropped), at_most("λμηK ≤ 1", pull, 1))
    constants = {"lambda": strength, "kappa": k, "sigma": noise, "mu": mu}
    constants["kappa_beta"] = kappa_beta(run.beta, run.N, run.C, form)
    if strength <= 0:
        return vacuous(name, conditions, constants)
    terms = {
        "initial": exp(-pull * run.T) * run.D,
        "noise": run.eta * k * run.L * noise / (strength * mu * run.N),
    }
    if not printed(form) and run.beta:
        conditions = (*conditions, divergence_range(run, form))
        mean = theorem_17(run, sigma_l2=sigma_l2, sigma_g2=sigma_g2, form=form).value
        terms["divergence"] = relaxation(run) * run.L * pull * run.T * mean
    return assemble(name, terms, conditions, constants)


def theorem_6(
    run: RelaxedRun,
    *,
    a: float,
    b: float,
    delta_T: float = 0.0,
    dropped: float | None = None,
    form: Form = "repaired",
) -> Bound:
    """Theorem 6 (interpolation, ‖g_i‖² ≤ a²‖∇f_i‖², ‖∇f_i‖² ≤ b²‖∇f‖²): the mean of E‖∇f(w^t)‖².

    D/(ζηKT) − 2γ_ββ²L·Δ_T/(ζηKT); the forms differ in ζ, and the repaired 2 is 2(1 + ηKL), see ``zeta``.
    """
    nonnegative("delta_T", delta_T)
    strength, name = zeta(run, a, b, form), f"Theorem 6 ({form})"
    g = gamma_beta(run.beta, run.N, run.C, form)
    conditions = interpolation_conditions(run, a, b, form, dropped)
    constants = {"zeta": strength, "gamma_beta": g, "a": a, "b": b}
    if strength <= 0:
        return vacuous(name, conditions, constants)
    scale = 1 / (strength * run.eta * run.K * run.T)
    weight = 2 * choose(form, 1, 1 + run.ekl)
    divergence = -weight * g * run.beta**2 * run.L * delta_T * scale
    return assemble(name, {"initial": run.D * scale, "divergence": divergence}, conditions, constants)


def theorem_9(
    run: RelaxedRun, *, mu: float, a: float, b: float, dropped: float | None = None, form: Form = "repaired"
) -> Bound:
    """Theorem 9 (interpolation and PL): E[f(w^T) − f(w*)] ≤ e^{−ζμηKT}D + R_βη²K²LD.

    The forms differ in ζ and in R_β (one γ_β printed, two repaired). ``dropped`` is the largest value of the
    dropped product, as in Theorem 4.
    """
    strength, name = zeta(run, a, b, form), f"Theorem 9 ({form})"
    pull = strength * positive("mu", mu) * run.eta * run.K
    conditions = (*interpolation_conditions(run, a, b, form, dropped), at_most("ζμηK ≤ 1", pull, 1))
    r, g = r_beta(run, a, b, mu, form), gamma_beta(run.beta, run.N, run.C, form)
    constants = {"zeta": strength, "R_beta": r, "gamma_beta": g, "mu": mu, "a": a, "b": b}
    if strength <= 0:
        return vacuous(name, conditions, constants)
    terms = {"initial": exp(-pull * run.T) * run.D, "relaxation": r * (run.eta * run.K) ** 2 * run.L * run.D}
    return assemble(name, terms, conditions, constants)
