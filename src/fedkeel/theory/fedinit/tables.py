"""FedInit's Tables 2 and 3: the rates of its theorems, the steps that give them, SGD beside FedAvg."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedkeel.theory.bound import Form, choose
from fedkeel.theory.checks import count, positive
from fedkeel.theory.numeric import power


class RateRow(NamedTuple):
    """One line of Table 2."""

    theorem: int
    assumptions: tuple[int, ...]
    quantity: str
    bound: str
    rate: str


TABLE_2 = (
    RateRow(1, (1, 3, 5), "mean ‖∇f‖²", "D/(ληKT) + ηκLσ/(λN) − 13β²κ_βL²Δ_T/(ληNKT)", "1/√(NKT)"),
    RateRow(4, (1, 2, 3, 5), "f(w^T) − f*", "e^{−λμηKT}D + ηκLσ/(λμN) + O(η/T + η²)", "1/(NKT)"),
    RateRow(6, (1, 4, 6), "mean ‖∇f‖²", "D/(ζηKT) − 2γ_ββ²LΔ_T/(ζηKT)", "1/(NKT)"),
    RateRow(9, (1, 2, 4, 6), "f(w^T) − f*", "e^{−ζμηKT}D + R_βη²K²LD", "1/T²"),
)
"""As printed: row 1 has L² where the proof has L; rows 1, 4 and 6 have rates that their steps do not give."""


def step_theorem_1(N: int, K: int, T: int, form: Form = "repaired") -> float:
    """Remark 3, up to a constant: η = √(N/(KT)) as printed; repaired √(N/T)/K.

    The remark takes σ for a constant; it is σ_l² + 6Kσ_g², so that at the printed step Theorem 1's own bound
    grows like √(K/(NT)). The step that balances its two terms is smaller by √K.
    """
    return math.sqrt(count("N", N) / count("T", T)) / choose(form, math.sqrt(count("K", K)), K)


def rate_theorem_1(N: int, K: int, T: int, form: Form = "repaired") -> float:
    """Remark 3, up to a constant: 1/√(NKT) as printed; repaired 1/√(NT): no speed-up with K.

    With the best step the bound is 2√(DκLσ/(NKT))/λ, and σ/K does not fall below 6σ_g². Only clients that are
    all alike (σ_g = 0) have the printed rate. The poster's first row has 3κ_1ηKLG² and needs the same repair.
    """
    return 1 / math.sqrt(count("N", N) * choose(form, count("K", K), 1) * count("T", T))


def step_theorem_4(N: int, K: int, T: int, *, lam: float, mu: float) -> float:
    """Remark 5: η = log(NKT)/(λμKT)."""
    count("N", N)
    return math.log(N * K * T) / (positive("lam", lam) * positive("mu", mu) * count("K", K) * count("T", T))


def rate_theorem_4(N: int, K: int, T: int, form: Form = "repaired") -> float:
    """Remark 5, without logarithms: 1/(NKT) as printed; repaired 1/(NT), as in ``rate_theorem_1``.

    ηκLσ/(λμN) at the remark's step is log(NKT)·κLσ/((λμ)²NKT), with σ/K ≥ 6σ_g²: no speed-up with K.
    """
    return 1 / (count("N", N) * choose(form, count("K", K), 1) * count("T", T))


def step_theorem_6(N: int) -> float:
    """Remark 8: η = 1/N, up to a constant."""
    return 1 / count("N", N)


def rate_theorem_6(N: int, K: int, T: int, form: Form = "repaired") -> float:
    """Remark 8: printed 1/(NKT); repaired N/(KT), for D/(ζηKT) at η = 1/N has N above the line."""
    count("N", N)
    return choose(form, 1 / N, N) / (count("K", K) * count("T", T))


def step_theorem_9(K: int, T: int, *, zeta: float, mu: float) -> float:
    """Remark 10: η = 2·log(KT)/(ζμKT)."""
    KT = count("K", K) * count("T", T)
    return 2 * math.log(KT) / (positive("zeta", zeta) * positive("mu", mu) * KT)


def rate_theorem_9(T: int) -> float:
    """Remark 10: 1/T², without logarithms."""
    return 1 / count("T", T) ** 2


def rate_theorem_17(N: int, K: int, T: int, form: Form = "repaired", *, step: Form = "repaired") -> float:
    """Remark 18, up to a constant: 1/T printed, whatever the step; repaired η²K² at Theorem 1's ``step``.

    That is N/T at the repaired √(N/T)/K, which the poster prints too, and NK/T at the printed √(N/(KT)).
    """
    at_step = count("N", N) * choose(step, count("K", K), 1)
    return choose(form, 1, at_step) / count("T", T)


def rate_theorem_17_pl(T: int) -> float:
    """Remark 18 with Theorem 4's step: 1/T², without logarithms."""
    return 1 / count("T", T) ** 2


def rate_theorem_19(eta: float, T: int) -> float:
    """Theorem 19: η/T."""
    return positive("eta", eta) / count("T", T)


class StabilityOrder(NamedTuple):
    """One column of Table 3: how the stability error scales; the error itself is their product."""

    samples: float
    iterations: float

    @property
    def error(self) -> float:
        """samples × iterations."""
        return self.samples * self.iterations


def table_3(*, N: int, C: int, S: int, K: int, T: int, c: float, L: float) -> dict[str, StabilityOrder]:
    """Table 3: SGD on all CS samples, 1/(CS)·T^{cL/(1+cL)}; FedAvg, N^q/(CS)·(TK)^q with q = cKL/(1+cKL).

    Equal at K = N = 1.
    """
    CS = count("C", C) * count("S", S)
    sgd = positive("c", c) * positive("L", L)
    q = sgd * count("K", K) / (1 + sgd * K)
    return {
        "SGD": StabilityOrder(1 / CS, power(count("T", T), sgd / (1 + sgd))),
        "FedAvg": StabilityOrder(power(count("N", N), q) / CS, power(T * K, q)),
    }


def worst_participation(
    *, C: int, S: int, K: int, T: int, c: float, L: float, form: Form = "repaired"
) -> float:
    """Remark 13's worst case, all clients in every round: (1/C)^{q}/S as printed; repaired C^{q−1}·(TK)^q/S.

    Table 3 at N = C is C^q/(CS)·(TK)^q with q = cKL/(1+cKL), and C^q/C is (1/C)^{1−q}: the printed exponent
    is the other one, and the factor of the iterations is left out.
    """
    at_all = table_3(N=C, C=C, S=S, K=K, T=T, c=c, L=L)["FedAvg"]
    q = c * K * L / (1 + c * K * L)
    return choose(form, power(1 / C, q) / S, at_all.error)


class SpeedRow(NamedTuple):
    """A line of Table 8: rounds and seconds to a target accuracy, with the printed ratios against FedAvg."""

    method: str
    rounds: int
    rounds_ratio: float
    seconds: int
    seconds_ratio: float


def speed_ratio(fedavg: float, method: float) -> float:
    """Table 8's "speed ratio": FedAvg's rounds or seconds to the target over the method's."""
    return positive("fedavg", fedavg) / positive("method", method)


TABLE_8 = (
    (
        SpeedRow("FedAvg", 371, 1.0, 7189, 1.0),
        SpeedRow("FedAdam", 489, 0.76, 11354, 0.63),
        SpeedRow("FedSAM", 377, 0.98, 11396, 0.63),
        SpeedRow("SCAFFOLD", 248, 1.50, 7095, 1.01),
        SpeedRow("FedDyn", 192, 1.93, 4577, 1.57),
        SpeedRow("FedCM", 183, 2.02, 4141, 1.73),
        SpeedRow("FedInit", 172, 2.15, 3510, 2.04),
    ),
    (
        SpeedRow("FedAvg", 191, 1.0, 3701, 1.0),
        SpeedRow("FedAdam", 256, 0.74, 5944, 0.62),
        SpeedRow("FedSAM", 204, 0.93, 6166, 0.60),
        SpeedRow("SCAFFOLD", 211, 0.90, 6036, 0.61),
        SpeedRow("FedDyn", 122, 1.56, 2908, 1.27),
        SpeedRow("FedCM", 95, 2.01, 2149, 1.72),
        SpeedRow("FedInit", 132, 1.44, 2694, 1.37),
    ),
)
"""Table 8: ResNet-18-GN on CIFAR-10, 10 % of 100 clients, Dirichlet 0.1; its two blocks have no name."""
