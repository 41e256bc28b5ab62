"""The largest local rate, global rate and β that each theorem calls safe."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory import fedinit as fi
from fedkeel.theory import fedsagd as fs
from fedkeel.theory.advice.inputs import AdviceInputs
from fedkeel.theory.conditions import violated


class Limit(NamedTuple):
    """A theorem's largest value of something, beside the run's own; 0 where no value is safe."""

    who: str
    limit: float
    own: float
    why: str = ""

    @property
    def verdict(self) -> str:
        """Whether the run's own value is within, and by which factor it is not."""
        if abs(self.own) <= self.limit:
            return "holds"
        return violated(abs(self.own) / self.limit if self.limit > 0 else math.inf)


def local_limits(g: AdviceInputs) -> tuple[Limit, ...]:
    """η_l by theorem; both forms of Beyond smoothness, FedInit with and without its β, FedSAGD."""
    own = g.eta_l
    return (
        Limit("Beyond smoothness, Λ > 0", bs.largest_local_step(g.semi, g.K), own, "repaired"),
        Limit("Beyond smoothness, 4.7", bs.largest_local_step(g.semi, g.K, "as_printed"), own, "as printed"),
        Limit("FedInit, Theorem 1, β = 0", _relaxed_step(g, 0.0), own, "FedAvg; λ > 0 included"),
        Limit(f"FedInit, Theorem 1, β = {g.beta:g}", _relaxed_step(g, g.beta), own, "λ > 0 included"),
        Limit("FedSAGD, Theorem 4.1", fs.local_step_limit(g.L, g.K), own, "1/(15LK)"),
    )


def global_limits(g: AdviceInputs) -> tuple[Limit, ...]:
    """η_g beside the run's local rate, or beside half the largest safe one where that is too large."""
    largest = bs.largest_local_step(g.semi, g.K)
    fits = 0 < g.eta_l < largest
    eta_l = g.eta_l if fits else largest / 2
    beside = f"beside η_l = {eta_l:.3g}" + ("" if fits else ", half the largest")
    semi = bs.largest_global_step(g.semi, g.K, eta_l) if eta_l > 1e-30 else 0.0
    product = fs.product_limit(g.accelerated)
    own = f"beside η_l = {g.eta_l:.3g}, its β = {g.momentum:g}"
    return (
        Limit("Beyond smoothness, Λ > 0", min(semi, 1e30), g.eta_g, beside),
        Limit("FedSAGD, Theorem 4.1", product / g.eta_l, g.eta_g, own),
    )


def beta_limits(g: AdviceInputs) -> tuple[Limit, ...]:
    """|β| of relaxed initialisation: by theorem, at these steps, in the last round, and in practice."""
    shrinking = fi.beta_limit_at(g.T, g.sampling, g.L)
    return (
        Limit("Theorem 1", fi.beta_limit(g.N, g.C), g.beta, "κ_β > 0"),
        Limit("Theorem 1 at these steps", _relaxed_beta(g), g.beta, "λ > 0; 0 means: not even β = 0"),
        Limit("Theorem 17", fi.beta_limit_divergence(g.N, g.C), g.beta, "C_β > 0"),
        Limit("Theorems 6, 9, 19", fi.beta_limit_interpolation(g.N, g.C), g.beta, "γ_β > 0"),
        Limit(f"Theorem 12 in round {g.T}", min(shrinking, 1e30), g.beta, "with η = c/t; shrinks like 1/t²"),
        Limit("practice: β·C/N ≤ 1", g.N / g.C, g.beta, "above, the model can grow without bound"),
    )


def _relaxed_step(g: AdviceInputs, beta: float) -> float:
    """The largest η of Theorem 1 that also leaves λ > 0: 9x² + mx = ½ for x = ηKL."""
    run = g.relaxed_run(beta)
    limit = fi.step_limit(run)
    if limit <= 0:
        return 0.0
    m = 38 / g.N + fi.relaxation(run) * fi.recursion(g.N, g.C).gradient
    root = 1 / (m + math.sqrt(m**2 + 18))  # (−m + √(m²+18))/18 without cancellation
    return min(limit, root / (g.K * g.L))


def _relaxed_beta(g: AdviceInputs) -> float:
    """The largest β with λ > 0 at the run's η: β²κ_β = y, so β² = r·y/(1 + My)."""
    x = g.relaxed_run(0.0).ekl
    one = fi.recursion(g.N, g.C)
    y = (0.5 - 38 * x / g.N - 9 * x**2) / (fi.descent_weight(g.N, g.C) * one.gradient * x)
    return math.sqrt(one.forgotten * y / (1 + one.relaxed * y)) if y > 0 else 0.0
