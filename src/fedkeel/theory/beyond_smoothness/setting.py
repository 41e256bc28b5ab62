"""The constants of a loss, the steps of a run, and what one round does to the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedkeel.theory.bound import Form, choose, printed
from fedkeel.theory.checks import count, nonnegative, positive


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The loss's constants, named as in the paper; ``sigma2`` is the minibatch variance σ²."""

    a: float
    b: float
    alpha: float
    beta: float
    tau1: float
    tau2: float
    sigma2: float = 0.0

    def __post_init__(self) -> None:
        for name in ("a", "b", "alpha", "beta", "tau1", "sigma2"):
            nonnegative(name, getattr(self, name))
        positive("tau2", self.tau2)
        if self.tau2 < self.tau1:
            raise ValueError(f"tau2 is {self.tau2}, below tau1 = {self.tau1}: give tau2 >= tau1")

    @property
    def curvature(self) -> float:
        """2β² + α², the factor of the drift."""
        return 2 * self.beta**2 + self.alpha**2


@dataclass(frozen=True, kw_only=True)
class Steps:
    """K local steps of size ``eta_l``, and the server's ``eta_g``."""

    K: int
    eta_l: float
    eta_g: float = 1.0

    def __post_init__(self) -> None:
        count("K", self.K)
        positive("eta_l", self.eta_l)
        positive("eta_g", self.eta_g)

    @property
    def effective(self) -> float:
        """η̃ = K·η_l·η_g."""
        return self.K * self.eta_l * self.eta_g


class RoundProgress(NamedTuple):
    """What one round does to the loss: E L⁺ − L ≤ −γ1‖∇L‖² + A1·σ² + (A2 + A3)·L (proof of Theorem 4.7)."""

    gamma1: float
    A1: float
    A2: float
    A3: float
    contraction: float  # Λ = γ1·τ1² − A2 − A3


def drift_factor(c: Constants, K: int) -> float:
    """20 + 40K²τ2², the factor of η_l²L(U) in the drift; repaired 20K² + 40K²τ2² where α > 0.

    Step (14) of Lemma 6.3 turns 2α²Kη_l²·‖W−U‖√L into (1/K)‖W−U‖² + (1/K)η_l²L by η_l ≤ 1/(α²K), which would
    take η_l ≤ 1/(α²K²). With the limit that is printed, the second part is Kη_l²L, K² times as much. At α = 0
    the step is not needed.
    """
    return 20 * (K**2 if c.alpha > 0 else 1) + 40 * K**2 * c.tau2**2


def one_round(c: Constants, s: Steps, eta: float | None = None) -> RoundProgress:
    """γ1, A1, A2, A3 and Λ: Lemma 6.4 with the drift of Lemma 6.3, for a free η; the proof of 4.7 takes η̃.

    γ1 = (η̃/2)(1−4bη̃−2aη̃/η); A1 = η̃[(2β²+α²)(½+h)·20Kη_l² + h]; A2 = η̃(2β²+α²)(½+h)·d·η_l²;
    A3 = η̃[α²/4 + α²h] + aη/2, with h = bη̃ + aη̃/(2η) and d the ``drift_factor``.
    """
    e = s.effective
    free = e if eta is None else positive("eta", eta)
    half = c.b * e + c.a * e / (2 * free)
    drift = c.curvature * (0.5 + half) * s.eta_l**2
    gamma1 = e / 2 * (1 - 4 * c.b * e - 2 * c.a * e / free)
    A1 = e * (drift * 20 * s.K + half)
    A2 = e * drift * drift_factor(c, s.K)
    A3 = e * (c.alpha**2 / 4 + c.alpha**2 * half) + c.a * free / 2
    return RoundProgress(gamma1, A1, A2, A3, gamma1 * c.tau1**2 - A2 - A3)


def lemma_6_1(mean2: float, n: int, sigma2: float, *, martingale: bool) -> float:
    """Lemma 6.1: E‖Σ a_i‖² ≤ ‖Σμ_i‖² + n²σ², or 2‖Σμ_i‖² + 2nσ² where the a_i − μ_i are a martingale's steps.

    ``mean2`` is ‖Σμ_i‖² (its expectation, for a martingale), n the number of terms, σ² the variance of each.
    """
    nonnegative("mean2", mean2)
    nonnegative("sigma2", sigma2)
    return 2 * mean2 + 2 * count("n", n) * sigma2 if martingale else mean2 + count("n", n) ** 2 * sigma2


def lambda_1(c: Constants, s: Steps) -> float:
    """Theorem 4.7 as printed: λ1 = (η̃/4)(1 − 4bη̃ − 2a)·τ1²."""
    e = s.effective
    return e / 4 * (1 - 4 * c.b * e - 2 * c.a) * c.tau1**2


def lambda_2(c: Constants, s: Steps) -> float:
    """Theorem 4.7 as printed: λ2 = (1 + a + bη̃)·(η̃/10)·σ²."""
    e = s.effective
    return (1 + c.a + c.b * e) * e / 10 * c.sigma2


def rate(c: Constants, s: Steps, form: Form = "repaired") -> float:
    """The share of the gap that one round removes: λ1 printed, Λ repaired; zero or negative means none."""
    return choose(form, lambda_1(c, s), one_round(c, s).contraction)


def floor(c: Constants, s: Steps, form: Form = "repaired") -> float:
    """Where the gap stops: 2·λ2 printed; repaired A1·σ²/Λ, for u ← (1−Λ)u + f settles at f/Λ."""
    if printed(form):
        return 2 * lambda_2(c, s)
    step = one_round(c, s)
    if step.contraction <= 0:
        return math.inf
    return step.A1 * c.sigma2 / step.contraction
