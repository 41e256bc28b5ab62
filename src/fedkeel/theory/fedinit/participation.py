"""What partial participation does to FedInit's lemmas: the constants of the recursion of the divergence Δ.

The paper applies (10) to all C clients in every round. Algorithm 1 renews only the N that take part; the
others keep the model w_i of their last turn, C/N rounds ago on average. Write p = N/C, d_i = w_i − w^t,
u = w^{t+1} − w^t and s_i = Σ_k ηg_{i,k}. After the round

    w^{t+1} − w_i = βd_i + u + s_i   with probability p,     u − d_i   otherwise,

so with ‖u − d‖² ≤ (1 + p/2)‖d‖² + (1 + 2/p)‖u‖² for those that sat out

    Δ^{t+1} ≤ [(1−p)(1+p/2) + 3pβ²]Δ^t + A·V2 + 3p·mean‖s_i‖²,   A = 3p + (1−p)(1+2/p) = 2p + 2/p − 1.

At p = 1 this is the paper's 3β²Δ + 3V2 + 3·mean‖s‖². The share of Δ that is forgotten is r = p(1+p)/2.
V2 is that of Lemma 22, with the term of the mean offset written out: a = C(N−1)/(N(C−1)) is the weight of
the mean over all clients in the square of a cohort's mean, and (1/C)Σd_i = 0 only when all clients take part.
"""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.theory.bound import Form, printed


class DivergenceRecursion(NamedTuple):
    """Lemma 23: (r − Mβ²)Δ^t ≤ Δ^t − Δ^{t+1} + noise·η²Kσ + gradient·η²K²‖∇f‖² + total·η²‖mean ΣΣ∇f_i‖².

    ``forgotten`` is r and ``relaxed`` is M.
    """

    forgotten: float
    relaxed: float
    noise: float
    gradient: float
    total: float


def update_weight(N: int, C: int) -> float:
    """A = 2p + 2/p − 1, how strongly V2 enters Δ: 3 when all take part, about 2C/N when few do."""
    p = N / C
    return 2 * p + 2 / p - 1


def forgotten(N: int, C: int) -> float:
    """r = p(1+p)/2, the share of Δ that one round forgets at β = 0."""
    p = N / C
    return p * (1 + p) / 2


def mean_weight(N: int, C: int) -> float:
    """a = C(N−1)/(N(C−1)): E‖mean of N of C vectors‖² = a‖their mean‖² + (1−a)·their mean square."""
    return 1.0 if N == C else C * (N - 1) / (N * (C - 1))


def recursion(N: int, C: int, form: Form = "repaired") -> DivergenceRecursion:
    """Lemma 23's constants.

    Printed 141, 96, 576, 6, whatever N is. Repaired for N = C: 99 for the 96 (a 1 for a 2 in the proof).
    Repaired for N < C, from V2 ≤ (20/N + 2a)β²Δ + (13/N)η²Kσ_l² + (76/N)η²K²(σ_g² + ‖∇f‖²) + 2aη²(…)
    and mean‖s‖² ≤ 24β²Δ + 20η²Kσ_l² + 114η²K²(σ_g² + ‖∇f‖²): M = 75p + A(20/N + 2a),
    13A/N + 60p, 76A/N + 342p and 2aA.
    """
    if printed(form) or N == C:
        return DivergenceRecursion(1.0, 141.0, 96.0 if printed(form) else 99.0, 576.0, 6.0)
    p, A, a = N / C, update_weight(N, C), mean_weight(N, C)
    return DivergenceRecursion(
        forgotten(N, C), 75 * p + A * (20 / N + 2 * a), 13 * A / N + 60 * p, 76 * A / N + 342 * p, 2 * a * A
    )


def interpolation_recursion(N: int, C: int, form: Form = "repaired") -> DivergenceRecursion:
    """Lemma 26's constants: 39 and 114 printed; repaired M = 27p + 4A and 12A + 78p, the same at N = C."""
    if printed(form):
        return DivergenceRecursion(1.0, 39.0, 0.0, 114.0, 0.0)
    p, A = N / C, update_weight(N, C)
    return DivergenceRecursion(forgotten(N, C), 27 * p + 4 * A, 0.0, 12 * A + 78 * p, 0.0)


def descent_weight(N: int, C: int, form: Form = "repaired") -> float:
    """The factor of β²LΔ in a round's descent: 13/N, repaired 12/N + 1 for N < C.

    The 1 is Lemma 22's mean offset, 2β²·C(N−1)/(N(C−1))·Δ times L/2, which the paper prints as 2β²Δ/N.
    """
    return 13 / N if printed(form) or N == C else 12 / N + 1
