"""FedInit's Lemmas 21 to 26 one by one: local updates V1, global update V2 and divergence Δ after a round.

V1 = mean over all clients of Σ_k ‖w_{i,k} − w‖², V2 = E‖w⁺ − w‖², Δ = mean over all clients of ‖w_i − w‖²
with w_i the model of a client's last turn. Each takes the state before the round as a ``RoundState``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedkeel.theory.bound import Bound, Form, assemble, choose, printed
from fedkeel.theory.checks import nonnegative, positive
from fedkeel.theory.conditions import Condition, at_most
from fedkeel.theory.fedinit.conditions import interpolation_limit, local_limit
from fedkeel.theory.fedinit.constants import RelaxedRun
from fedkeel.theory.fedinit.participation import (
    interpolation_recursion,
    mean_weight,
    recursion,
)


@dataclass(frozen=True, kw_only=True)
class RoundState:
    """Δ^t, ‖∇f(w^t)‖² and, for Lemmas 22 and 23, ‖(1/C)ΣΣ∇f_i(w_{i,k})‖² (``total2``), with σ_l² and σ_g²."""

    delta: float
    gradient2: float
    total2: float = 0.0
    sigma_l2: float = 0.0
    sigma_g2: float = 0.0

    def __post_init__(self) -> None:
        for name in ("delta", "gradient2", "total2", "sigma_l2", "sigma_g2"):
            nonnegative(name, getattr(self, name))

    def noise(self, K: int) -> float:
        """σ_l² + 6Kσ_g²."""
        return self.sigma_l2 + 6 * K * self.sigma_g2


def lemma_21(run: RelaxedRun, s: RoundState, form: Form = "repaired") -> Bound:
    """Lemma 21: V1 ≤ 4Kβ²Δ + 3K²η²(σ_l² + 6Kσ_g²) + 18K³η²‖∇f‖². Both forms alike."""
    terms = {
        "divergence": 4 * run.K * run.beta**2 * s.delta,
        "noise": 3 * (run.K * run.eta) ** 2 * s.noise(run.K),
        "gradient": 18 * run.K**3 * run.eta**2 * s.gradient2,
    }
    return _lemma("21", terms, (_variance_limit(run),), form)


def lemma_22(run: RelaxedRun, s: RoundState, form: Form = "repaired") -> Bound:
    """Lemma 22: V2 ≤ cβ²Δ + (13/N)η²Kσ_l² + (76/N)η²K²(σ_g² + ‖∇f‖²) + 2η²‖(1/C)ΣΣ∇f_i‖².

    c is printed 22/N; the proof's last 2/N has lost a factor C: it is 2a with a = C(N−1)/(N(C−1)), the weight
    of the mean over all clients (zero at N = C, where the mean of w − w_i is zero). So c = 20/N + 2a, and
    the last term has 2a for 2. The proof also drops the product of the noise with the gradients it changes
    later in the walk; it fits into 13 and 76 for ηKL ≤ ½, where the paper asks ηKL ≤ 1.
    """
    a = mean_weight(run.N, run.C)
    offset = choose(form, 2 / run.N, 0.0 if run.N == run.C else 2 * a)
    e2 = run.eta**2
    terms = {
        "divergence": (20 / run.N + offset) * run.beta**2 * s.delta,
        "noise": 13 * e2 * run.K * s.sigma_l2 / run.N,
        "heterogeneity": 76 * e2 * run.K**2 * s.sigma_g2 / run.N,
        "gradient": 76 * e2 * run.K**2 * s.gradient2 / run.N,
        "total": 2 * choose(form, 1, a) * e2 * s.total2,
    }
    return _lemma("22", terms, (_step(run, form), _variance_limit(run)), form)


def lemma_23(run: RelaxedRun, s: RoundState, form: Form = "repaired") -> Bound:
    """Lemma 23: Δ^{t+1} ≤ (1 − r + Mβ²)Δ + noise + gradient + total, see ``participation.recursion``.

    Printed: 141β²Δ + 96η²K(σ_l² + 6Kσ_g²) + 576η²K²‖∇f‖² + 6η²‖(1/C)ΣΣ∇f_i‖², which is what happens only
    when all clients take part.
    """
    one, e2 = recursion(run.N, run.C, form), run.eta**2
    terms = {
        "divergence": (1 - one.forgotten + one.relaxed * run.beta**2) * s.delta,
        "noise": one.noise * e2 * run.K * s.noise(run.K),
        "gradient": one.gradient * e2 * run.K**2 * s.gradient2,
        "total": one.total * e2 * s.total2,
    }
    return _lemma("23", terms, (_step(run, form), _variance_limit(run)), form)


def lemma_24(run: RelaxedRun, s: RoundState, *, a: float, b: float, form: Form = "repaired") -> Bound:
    """Lemma 24 (interpolation): V1 ≤ 4Kβ²Δ + 12a²b²η²K³‖∇f‖². Both forms alike."""
    terms = {
        "divergence": 4 * run.K * run.beta**2 * s.delta,
        "gradient": 12 * _ab2(a, b) * run.eta**2 * run.K**3 * s.gradient2,
    }
    return _lemma("24", terms, _interpolation_limits(run, a), form)


def lemma_25(run: RelaxedRun, s: RoundState, *, a: float, b: float, form: Form = "repaired") -> Bound:
    """Lemma 25 (interpolation): V2 ≤ 4β²Δ + 12a²b²η²K²‖∇f‖².

    For K = 1, which the paper leaves out, the repaired form asks η ≤ 0.48/(aL): then 1.2 + 12(aηL)² ≤ 4.
    """
    terms = {
        "divergence": 4 * run.beta**2 * s.delta,
        "gradient": 12 * _ab2(a, b) * (run.eta * run.K) ** 2 * s.gradient2,
    }
    return _lemma("25", terms, (*_interpolation_limits(run, a), *_single_step(run, a, form)), form)


def lemma_26(run: RelaxedRun, s: RoundState, *, a: float, b: float, form: Form = "repaired") -> Bound:
    """Lemma 26 (interpolation): Δ^{t+1} ≤ (1 − r + Mβ²)Δ + (12A + 78p)a²b²η²K²‖∇f‖².

    Printed, and repaired at N = C: 39β²Δ + 114a²b²η²K²‖∇f‖².
    """
    one = interpolation_recursion(run.N, run.C, form)
    terms = {
        "divergence": (1 - one.forgotten + one.relaxed * run.beta**2) * s.delta,
        "gradient": one.gradient * _ab2(a, b) * (run.eta * run.K) ** 2 * s.gradient2,
    }
    limit = at_most("η ≤ 1/(aKL)", run.eta, 1 / (a * run.K * run.L))
    return _lemma("26", terms, (limit, *_interpolation_limits(run, a), *_single_step(run, a, form)), form)


def _lemma(number: str, terms: Mapping[str, float], conditions: tuple[Condition, ...], form: Form) -> Bound:
    printed(form)
    return assemble(f"Lemma {number} ({form})", terms, conditions)


def _ab2(a: float, b: float) -> float:
    return (positive("a", a) * positive("b", b)) ** 2


def _step(run: RelaxedRun, form: Form) -> Condition:
    if printed(form):
        return at_most("η ≤ 1/(KL)", run.eta, 1 / (run.K * run.L))
    return at_most("η ≤ 1/(2KL)", run.eta, 1 / (2 * run.K * run.L))


def _variance_limit(run: RelaxedRun) -> Condition:
    return at_most("η ≤ 1/(L√(6(K−1)(2K−1)))", run.eta, local_limit(run), "Lemma 21")


def _interpolation_limits(run: RelaxedRun, a: float) -> tuple[Condition, ...]:
    return (at_most("η ≤ 1/(2aL√((2K−1)(K−1)))", run.eta, interpolation_limit(run, a), "Lemma 24"),)


def _single_step(run: RelaxedRun, a: float, form: Form) -> tuple[Condition, ...]:
    if printed(form) or run.K > 1:
        return ()
    return (at_most("η ≤ 0.48/(aL)", run.eta, 0.48 / (a * run.L), "one local step"),)
