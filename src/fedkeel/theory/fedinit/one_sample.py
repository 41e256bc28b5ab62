"""FedInit's Lemmas 27 to 30 one by one: two runs that differ in one sample, step by step; and Remark 14.

δ is E‖w_{i,k} − w̃_{i,k}‖, the distance of the two runs' local models; ``stability_distance`` unrolls them.
"""

from __future__ import annotations

from fedkeel.theory.bound import Form, choose
from fedkeel.theory.checks import count, nonnegative, positive
from fedkeel.theory.fedinit.generalisation import Sampling, beta_limit_at
from fedkeel.theory.numeric import power


def lemma_27(s: Sampling, *, U: float, t0: int, delta: float) -> float:
    """Lemma 27: E|f(w; z) − f(w̃; z)| ≤ NUKt0/(CS) + L_G·δ, δ given that round t0 finds the models equal.

    A local step of B samples meets the sample B times as often.
    """
    met = s.N * s.K * s.B * count("t0", t0) / (s.C * s.S)
    return positive("U", U) * met + s.L_G * nonnegative("delta", delta)


def lemma_28(delta: float, *, eta: float, L: float) -> float:
    """Lemma 28, a step on the same sample: δ⁺ ≤ (1 + ηL)δ."""
    return (1 + positive("eta", eta) * positive("L", L)) * nonnegative("delta", delta)


def lemma_29(delta: float, *, eta: float, L: float, sample_spread: float) -> float:
    """Lemma 29, a step on different samples: δ⁺ ≤ (1 + ηL)δ + 2ηs, with σ_l printed for s.

    s is the largest distance of a sample's gradient from its client's mean, see ``generalisation``.
    """
    return lemma_28(delta, eta=eta, L=L) + 2 * eta * nonnegative("sample_spread", sample_spread)


def lemma_30(delta: float, *, eta: float, a: float, b: float, L_G: float) -> float:
    """Lemma 30, a step on different samples under interpolation: δ⁺ ≤ δ + 2abηL_G."""
    longest = positive("a", a) * positive("b", b) * nonnegative("L_G", L_G)
    return nonnegative("delta", delta) + 2 * positive("eta", eta) * longest


def remark_14(s: Sampling, *, beta: float, L: float, form: Form = "repaired") -> float:
    """Remark 14, the factor by which a positive β lowers Theorem 12's bound: (1+2β)^{−1/(1+cKL)} as printed.

    Repaired, β counts as far as Theorem 12 allows it in the last round (``beta_limit_at``, about 1/T²), so
    that the factor tends to 1: the gain is one of the bound's form, for Lemmas 28 and 29 with δ_0 ≤ (1+2β)δ_K
    move two runs further apart the larger β is.
    """
    within = min(nonnegative("beta", beta), beta_limit_at(s.T, s, L))
    return power(1 + 2 * choose(form, beta, within), -1 / (1 + s.c * s.K * positive("L", L)))
