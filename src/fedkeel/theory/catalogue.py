"""Every bound under a name, as a function of one set of parameters: for tables and plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory import fedinit as fi
from fedkeel.theory import fedsagd as fs
from fedkeel.theory.bound import Bound, Form
from fedkeel.theory.conditions import at_least

_MOST_ROUNDS_ONE_BY_ONE = 10**7


@dataclass(frozen=True, kw_only=True)
class BoundParameters:
    """All that some bound depends on; the defaults are a small run within most theorems' conditions.

    ``a``, ``b`` are FedInit's interpolation constants; those of Beyond smoothness begin with ``semi_``.
    ``mu`` is the Polyak-Łojasiewicz constant, ``theta`` FedSAGD's Θ, ``momentum`` its β and ``lam`` its λ,
    ``c`` the rate of η = c/t, ``beta`` that of relaxed initialisation.
    ``sample_spread`` is the largest distance of a sample's gradient from its client's mean (at most 2·L_G),
    ``B`` the samples of a local step.
    """

    T: int = 1000
    K: int = 10
    N: int = 10
    C: int = 100
    S: int = 100
    beta: float = 0.0
    eta: float = 1e-4
    eta_g: float = 1.0
    L: float = 10.0
    D: float = 2.0
    sigma_l2: float = 1.0
    sigma_g2: float = 1.0
    a: float = 1.0
    b: float = 1.0
    mu: float = 0.1
    c: float = 0.01
    L_G: float = 1.0
    sample_spread: float = 2.0
    B: int = 1
    U: float = 5.0
    theta: float = 2.0
    momentum: float = 0.9
    lam: float = 0.01
    epsilon: float = 0.5
    gap_0: float = 2.0
    semi_a: float = 0.0
    semi_b: float = 5.0
    semi_alpha: float = 0.0
    semi_beta: float = 10.0
    tau1: float = 0.5
    tau2: float = 4.0

    @property
    def semi(self) -> bs.Constants:
        """The constants of Beyond smoothness."""
        return bs.Constants(
            a=self.semi_a,
            b=self.semi_b,
            alpha=self.semi_alpha,
            beta=self.semi_beta,
            tau1=self.tau1,
            tau2=self.tau2,
            sigma2=self.sigma_l2,
        )

    @property
    def steps(self) -> bs.Steps:
        """The steps of Beyond smoothness."""
        return bs.Steps(K=self.K, eta_l=self.eta, eta_g=self.eta_g)

    @property
    def run(self) -> fi.RelaxedRun:
        """The run of FedInit."""
        return fi.RelaxedRun(
            beta=self.beta, eta=self.eta, K=self.K, N=self.N, C=self.C, T=self.T, L=self.L, D=self.D
        )

    @property
    def sampling(self) -> fi.Sampling:
        """The sampling of FedInit's Theorem 12."""
        return fi.Sampling(N=self.N, C=self.C, S=self.S, K=self.K, T=self.T, c=self.c, L_G=self.L_G, B=self.B)

    @property
    def walks(self) -> fs.StabilityRun:
        """The run of FedSAGD's Table 1."""
        return fs.StabilityRun(
            theta=self.theta, eta_l=self.eta, K=self.K, T=self.T, participation=self.N / self.C
        )


class CatalogueEntry(NamedTuple):
    """A bound in the catalogue: what it bounds, and which of T, K, N, β it depends on."""

    what: str
    depends: tuple[str, ...]
    bound: Callable[[BoundParameters, Form], Bound]


def _theorem_1(k: BoundParameters, form: Form) -> Bound:
    return fi.theorem_1(k.run, sigma_l2=k.sigma_l2, sigma_g2=k.sigma_g2, form=form)


def _theorem_4(k: BoundParameters, form: Form) -> Bound:
    return fi.theorem_4(k.run, mu=k.mu, sigma_l2=k.sigma_l2, sigma_g2=k.sigma_g2, form=form)


def _theorem_12(k: BoundParameters, form: Form) -> Bound:
    """The printed form has σ_l, as the paper has it; a condition says where that is too small."""
    deviation = math.sqrt(max(k.sigma_l2, 0.0))
    spread = deviation if form == "as_printed" else k.sample_spread
    bound = fi.theorem_12(k.sampling, beta=k.beta, L=k.L, U=k.U, sample_spread=spread, form=form)
    largest = at_least("sample_spread ≥ σ_l", k.sample_spread, deviation, "a largest distance is no average")
    if form == "as_printed":
        why = "σ_l, an average, does not bound a sample's gradient"
        largest = at_least("σ_l ≥ sample_spread", deviation, k.sample_spread, why)
    return replace(bound, conditions=(*bound.conditions, largest))


def _theorem_15(k: BoundParameters, form: Form) -> Bound:
    if k.T > _MOST_ROUNDS_ONE_BY_ONE:
        raise ValueError(
            f"T is {k.T}: its rounds are added one by one, give at most {_MOST_ROUNDS_ONE_BY_ONE}"
        )
    return fi.theorem_15(k.sampling, betas=[k.beta] * (k.T + 1), a=k.a, b=k.b, L=k.L, form=form)


def _theorem_17(k: BoundParameters, form: Form) -> Bound:
    return fi.theorem_17(k.run, sigma_l2=k.sigma_l2, sigma_g2=k.sigma_g2, form=form)


def _theorem_4_1(k: BoundParameters, form: Form) -> Bound:
    steps = fs.AcceleratedSteps(
        K=k.K, eta_l=k.eta, eta=k.eta_g, s=k.N, m=k.C, beta=k.momentum, lam=k.lam, L=k.L
    )
    return fs.theorem_4_1(steps, T=k.T, D_0=k.D, sigma_l2=k.sigma_l2, sigma_g2=k.sigma_g2, form=form)


def _stability(method: str) -> Callable[[BoundParameters, Form], Bound]:
    def bound(k: BoundParameters, form: Form) -> Bound:
        return next(row for row in fs.table_1(k.walks, form=form) if row.method == method).over_rounds

    return bound


_RUN = ("T", "K", "N", "beta")
_METHODS = tuple(row.method for row in fs.table_1(fs.StabilityRun(theta=1.0, eta_l=1e-3, K=1)))
CATALOGUE: Mapping[str, CatalogueEntry] = {
    "beyond-4.7": CatalogueEntry(
        "Beyond smoothness, Theorem 4.7: loss after T rounds",
        ("T", "K"),
        lambda k, form: bs.theorem_4_7(k.semi, k.steps, gap_0=k.gap_0, r=k.T, form=form),
    ),
    "beyond-4.8": CatalogueEntry(
        "Beyond smoothness, Corollary 4.8: rounds to a loss of epsilon",
        ("K",),
        lambda k, form: bs.corollary_4_8(k.semi, k.steps, gap_0=k.gap_0, epsilon=k.epsilon, form=form),
    ),
    "beyond-5.2": CatalogueEntry(
        "Beyond smoothness, Section 5.2: loss after T rounds without noise",
        ("T", "K"),
        lambda k, form: bs.deterministic(k.semi, k.steps, gap_0=k.gap_0, r=k.T, form=form),
    ),
    "beyond-drift": CatalogueEntry(
        "Beyond smoothness, Lemma 6.3: drift of the local walks at the first loss",
        ("K",),
        lambda k, form: bs.drift(k.semi, k.steps, loss=k.gap_0, form=form),
    ),
    "fedinit-1": CatalogueEntry("FedInit, Theorem 1: mean ‖∇f‖² over T rounds", _RUN, _theorem_1),
    "fedinit-4": CatalogueEntry("FedInit, Theorem 4: f − f* after T rounds, PL", _RUN, _theorem_4),
    "fedinit-6": CatalogueEntry(
        "FedInit, Theorem 6: mean ‖∇f‖² over T rounds, interpolation",
        _RUN,
        lambda k, form: fi.theorem_6(k.run, a=k.a, b=k.b, form=form),
    ),
    "fedinit-9": CatalogueEntry(
        "FedInit, Theorem 9: f − f* after T rounds, interpolation and PL",
        _RUN,
        lambda k, form: fi.theorem_9(k.run, mu=k.mu, a=k.a, b=k.b, form=form),
    ),
    "fedinit-12": CatalogueEntry("FedInit, Theorem 12: generalisation error, η = c/t", _RUN, _theorem_12),
    "fedinit-15": CatalogueEntry(
        "FedInit, Theorem 15: generalisation error, interpolation, η = c/t, the same β in all rounds",
        ("T", "K", "beta"),
        _theorem_15,
    ),
    "fedinit-17": CatalogueEntry("FedInit, Theorem 17: mean divergence over T rounds", _RUN, _theorem_17),
    "fedinit-19": CatalogueEntry(
        "FedInit, Theorem 19: mean divergence over T rounds, interpolation",
        _RUN,
        lambda k, form: fi.theorem_19(k.run, a=k.a, b=k.b, form=form),
    ),
    "fedsagd-4.1": CatalogueEntry(
        "FedSAGD, Theorem 4.1: order of mean ‖∇f(z)‖²", ("T", "K", "N"), _theorem_4_1
    ),
    **{
        f"stability-{method.lower()}": CatalogueEntry(
            f"FedSAGD, Table 1: ‖x_T − x_T'‖ of {method}, one client replaced",
            ("T", "K", "N") if method == "FedDyn" else ("T", "K"),
            _stability(method),
        )
        for method in _METHODS
    },
}
"""The bounds by name."""
