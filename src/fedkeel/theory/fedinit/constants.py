"""Constants of FedInit's theorems: κ_β, γ_β, C_β, κ, λ, ζ, and the ranges of β they need.

N and C matter: see ``participation``. Where they are left out, all clients take part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedkeel.theory.bound import Form, choose, printed
from fedkeel.theory.checks import count, finite, nonnegative, positive
from fedkeel.theory.fedinit.participation import descent_weight, interpolation_recursion, recursion

BETA_LIMIT = 1 / math.sqrt(141)
"""|β| must stay below 0.0842 for κ_β > 0 (Theorems 1, 4, N = C); the usual β = 0.1 does not."""
BETA_LIMIT_DIVERGENCE = 1 / math.sqrt(189)
"""|β| below 0.0727 for C_β > 0 (Theorem 17, N = C): 1 − 48β²κ_β > 0 is 1 − (141+48)β² > 0."""
BETA_LIMIT_INTERPOLATION = 1 / math.sqrt(39)
"""|β| below 0.160 for γ_β > 0 (Theorems 6, 9, 19, N = C)."""


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


def beta_limit(N: int = 1, C: int = 1, form: Form = "repaired") -> float:
    """Theorem 1's range of |β|: √(r/M); 0.0842 when all take part, about N/(3C) when few do."""
    one = recursion(N, C, form)
    return math.sqrt(one.forgotten / one.relaxed)


def beta_limit_divergence(N: int = 1, C: int = 1, form: Form = "repaired") -> float:
    """Theorem 17's range of |β|; 0.0727 when all take part."""
    one = recursion(N, C, form)
    return math.sqrt(one.forgotten / (one.relaxed + 8 * one.total))


def beta_limit_interpolation(N: int = 1, C: int = 1, form: Form = "repaired") -> float:
    """The range of |β| in Theorems 6, 9, 19; 0.160 when all take part."""
    one = interpolation_recursion(N, C, form)
    return math.sqrt(one.forgotten / one.relaxed)


def kappa_beta(beta: float, N: int = 1, C: int = 1, form: Form = "repaired") -> float:
    """κ_β = 1/(r − Mβ²), 1/(1 − 141β²) at N = C (Theorem 1); inf where β is out of range."""
    one = recursion(N, C, form)
    return _inverse(one.forgotten - one.relaxed * finite("beta", beta) ** 2)


def gamma_beta(beta: float, N: int = 1, C: int = 1, form: Form = "repaired") -> float:
    """γ_β = 1/(r − Mβ²), 1/(1 − 39β²) at N = C (Theorem 6); inf where β is out of range."""
    one = interpolation_recursion(N, C, form)
    return _inverse(one.forgotten - one.relaxed * finite("beta", beta) ** 2)


def c_beta(beta: float, N: int = 1, C: int = 1, form: Form = "repaired") -> float:
    """C_β = κ_β/(1 − 48β²κ_β) = 1/(1 − 189β²) at N = C (Theorem 17); inf where β is out of range."""
    one = recursion(N, C, form)
    return _inverse(one.forgotten - (one.relaxed + 8 * one.total) * finite("beta", beta) ** 2)


def sigma(K: int, sigma_l2: float, sigma_g2: float) -> float:
    """σ = σ_l² + 6Kσ_g², noise and heterogeneity together (Theorem 1)."""
    return nonnegative("sigma_l2", sigma_l2) + 6 * count("K", K) * nonnegative("sigma_g2", sigma_g2)


def relaxation(run: RelaxedRun, form: Form = "repaired") -> float:
    """β²κ_β times the weight of Δ in the descent: what Lemma 23 is multiplied by; 0 at β = 0."""
    if not run.beta:
        return 0.0
    return descent_weight(run.N, run.C, form) * run.beta**2 * kappa_beta(run.beta, run.N, run.C, form)


def kappa(run: RelaxedRun, form: Form = "repaired") -> float:
    """κ of Theorem 1: printed 8 + 78β²κ_β²; repaired 8 + 1287β²κ_β at N = C.

    The proof multiplies 13β²L/N by Lemma 23's noise κ_β·99η²K (printed 96: a 1 for a 2): 13·99 = 1287.
    For N < C it is 8 + (12 + N)β²κ_β·(13A/N + 60p), see ``participation``.
    """
    if printed(form):
        return 8 + 78 * run.beta**2 * kappa_beta(run.beta, form=form) ** 2 if run.beta else 8.0
    return 8 + run.N * relaxation(run) * recursion(run.N, run.C).noise if run.beta else 8.0


def lam(run: RelaxedRun, form: Form = "repaired") -> float:
    """λ of Theorem 1: ½ − 38ηKL/N − c·β²κ_βηKL/N − 9η²K²L², c printed 728, repaired 7488 = 13·576 at N = C.

    Meant to lie in (0, ½); zero or negative means the theorem is void. At η = 1/(NKL) and β = 0 that takes
    N ≥ 10, which the paper does not say. For N < C, c is (12 + N)(76A/N + 342p).
    """
    x = run.ekl
    relaxed = relaxation(run, form) * choose(form, 728 / 13, recursion(run.N, run.C).gradient) * x
    return 0.5 - 38 * x / run.N - relaxed - 9 * x**2 if run.beta else 0.5 - 38 * x / run.N - 9 * x**2


def zeta(run: RelaxedRun, a: float, b: float, form: Form = "repaired") -> float:
    """ζ of Theorem 6: ½ − 6a²b²ηKL − m − 6a²b²η²K²L².

    m is printed 114γ_βa²b²ηK; repaired 2(1+ηKL)β²Lγ_β·c·a²b²ηK with Lemma 26's c = 114 at N = C. The paper
    has 2β²LΔ where V1 adds 2ηKL²β²Δ, hence the 1 + ηKL.
    """
    ab2 = (positive("a", a) * positive("b", b)) ** 2
    x, g = run.ekl, gamma_beta(run.beta, run.N, run.C, form)
    slope = interpolation_recursion(run.N, run.C, form).gradient
    relaxed = 2 * slope * (1 + x) * run.beta**2 * g * ab2 * x if run.beta else 0.0
    middle = choose(form, 114 * g * ab2 * run.eta * run.K, relaxed)
    return 0.5 - 6 * ab2 * x - middle - 6 * ab2 * x**2


def divergence_slope(run: RelaxedRun, form: Form = "repaired") -> float:
    """Theorem 17's factor of ‖∇f‖², 804 = 576 + 38·6 at N = C."""
    one = recursion(run.N, run.C, form)
    return one.gradient + 38 * one.total


def j_beta(run: RelaxedRun, form: Form = "repaired") -> float:
    """J_β = C_β(c + 804κ/(λN)) of Theorem 17, c printed 132 = 96+36, repaired 135 = 99+36 at N = C."""
    strength, outer = lam(run, form), c_beta(run.beta, run.N, run.C, form)
    if strength <= 0 or math.isinf(outer):
        return math.inf
    one = recursion(run.N, run.C, form)
    slope = divergence_slope(run, form) * kappa(run, form) / (strength * run.N)
    return outer * (one.noise + 6 * one.total + slope)


def r_beta(run: RelaxedRun, a: float, b: float, mu: float, form: Form = "repaired") -> float:
    """R_β of Theorem 9: 228μγ_ββ²a²b² printed; repaired with γ_β², as the end of appendix A.3 has it.

    The repaired one also has ζ's 1 + ηKL, and Lemma 26's constant for N < C in place of 114.
    """
    if not run.beta:
        return 0.0
    g = gamma_beta(run.beta, run.N, run.C, form)
    ab2 = (positive("a", a) * positive("b", b)) ** 2
    slope = interpolation_recursion(run.N, run.C, form).gradient
    return 2 * slope * positive("mu", mu) * choose(form, g, g**2 * (1 + run.ekl)) * run.beta**2 * ab2


def _inverse(x: float) -> float:
    return 1 / x if x > 0 else math.inf
