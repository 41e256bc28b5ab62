"""Constants of FedInit's theorems: κ_β, γ_β, C_β, κ, λ, ζ, and the ranges of β they need."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedkeel.theory.bound import Form, choose
from fedkeel.theory.checks import count, finite, nonnegative, positive

BETA_LIMIT = 1 / math.sqrt(141)
"""|β| must stay below 0.0842 for κ_β > 0 (Theorems 1, 4); the usual β = 0.1 does not."""
BETA_LIMIT_DIVERGENCE = 1 / math.sqrt(189)
"""|β| below 0.0727 for C_β > 0 (Theorem 17): 1 − 48β²κ_β > 0 is 1 − (141+48)β² > 0."""
BETA_LIMIT_INTERPOLATION = 1 / math.sqrt(39)
"""|β| below 0.160 for γ_β > 0 (Theorems 6, 9, 19)."""


@dataclass(frozen=True, kw_only=True)
class RelaxedRun:
    """A run of FedInit: K local steps of size ``eta``, N of C clients per round, T rounds, coefficient β.

    ``L`` is the smoothness of every client's loss and ``D`` the initial gap f(w⁰) − f(w*).
    """

    beta: float
    eta: float
    K: int
    N: int
    C: int
    T: int
    L: float
    D: float

    def __post_init__(self) -> None:
        finite("beta", self.beta)
        positive("eta", self.eta)
        positive("L", self.L)
        nonnegative("D", self.D)
        for name in ("K", "N", "C", "T"):
            count(name, getattr(self, name))
        if self.N > self.C:
            raise ValueError(f"N is {self.N} of C = {self.C} clients: give N <= C")

    @property
    def ekl(self) -> float:
        """ηKL, the step in units of the curvature."""
        return self.eta * self.K * self.L


def kappa_beta(beta: float) -> float:
    """κ_β = 1/(1 − 141β²) (Theorem 1); inf from |β| = 0.0842 on."""
    return _inverse(1 - 141 * finite("beta", beta) ** 2)


def gamma_beta(beta: float) -> float:
    """γ_β = 1/(1 − 39β²) (Theorem 6); inf from |β| = 0.160 on."""
    return _inverse(1 - 39 * finite("beta", beta) ** 2)


def c_beta(beta: float) -> float:
    """C_β = κ_β/(1 − 48β²κ_β) = 1/(1 − 189β²) (Theorem 17); inf from |β| = 0.0727 on."""
    return _inverse(1 - 189 * finite("beta", beta) ** 2)


def sigma(K: int, sigma_l2: float, sigma_g2: float) -> float:
    """σ = σ_l² + 6Kσ_g², noise and heterogeneity together (Theorem 1)."""
    return nonnegative("sigma_l2", sigma_l2) + 6 * count("K", K) * nonnegative("sigma_g2", sigma_g2)


def kappa(beta: float, form: Form = "repaired") -> float:
    """κ of Theorem 1: printed 8 + 78β²κ_β², repaired 8 + 1287β²κ_β.

    The proof multiplies 13β²L/N by Lemma 23's noise κ_β·99η²K (printed 96: a 1 for a 2): 13·99 = 1287.
    """
    kb, b2 = kappa_beta(beta), beta**2
    return choose(form, 8 + 78 * b2 * kb**2, 8 + 1287 * b2 * kb) if beta else choose(form, 8, 8)


def lam(run: RelaxedRun, form: Form = "repaired") -> float:
    """λ of Theorem 1: ½ − 38ηKL/N − c·β²κ_βηKL/N − 9η²K²L², c printed 728, repaired 7488 = 13·576.

    Meant to lie in (0, ½); zero or negative means the theorem is void. At η = 1/(NKL) and β = 0 that takes
    N ≥ 10, which the paper does not say.
    """
    x = run.ekl
    relaxed = choose(form, 728, 7488) * run.beta**2 * kappa_beta(run.beta) * x / run.N if run.beta else 0.0
    return 0.5 - 38 * x / run.N - relaxed - 9 * x**2


def zeta(run: RelaxedRun, a: float, b: float, form: Form = "repaired") -> float:
    """ζ of Theorem 6: ½ − 6a²b²ηKL − m − 6a²b²η²K²L².

    m is printed 114γ_βa²b²ηK, repaired 228β²γ_βLa²b²ηK (2β²L times Lemma 26's 114). The proof also drops
    2ηKL²β²Δ next to 2β²LΔ, which would double m at ηKL = 1; the repaired form follows the specification
    and leaves that out.
    """
    ab2 = (positive("a", a) * positive("b", b)) ** 2
    x, g = run.ekl, gamma_beta(run.beta)
    relaxed = 228 * run.beta**2 * g * ab2 * x if run.beta else 0.0
    middle = choose(form, 114 * g * ab2 * run.eta * run.K, relaxed)
    return 0.5 - 6 * ab2 * x - middle - 6 * ab2 * x**2


def j_beta(run: RelaxedRun, form: Form = "repaired") -> float:
    """J_β = C_β(c + 804κ/(λN)) of Theorem 17, c printed 132 = 96+36, repaired 135 = 99+36."""
    strength = lam(run, form)
    if strength <= 0 or math.isinf(c_beta(run.beta)):
        return math.inf
    return c_beta(run.beta) * (choose(form, 132, 135) + 804 * kappa(run.beta, form) / (strength * run.N))


def r_beta(beta: float, a: float, b: float, mu: float, form: Form = "repaired") -> float:
    """R_β of Theorem 9: 228μγ_ββ²a²b² printed; repaired with γ_β², as the end of appendix A.3 has it."""
    if not beta:
        return 0.0
    g = gamma_beta(beta)
    ab2 = (positive("a", a) * positive("b", b)) ** 2
    return 228 * positive("mu", mu) * choose(form, g, g**2) * beta**2 * ab2


def _inverse(x: float) -> float:
    return 1 / x if x > 0 else math.inf
