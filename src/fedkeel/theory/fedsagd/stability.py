"""FedSAGD, Table 1 and appendix C: bounds on E‖x_T − x_T'‖ when one client of the set is replaced.

Θ = √(σ_l² + 2σ_g² + 2Φ) bounds a minibatch gradient, Φ being the largest ‖∇f‖² along the run. Every row but
FedSAGD's grows linearly in T. A row with T = 1 (the default of ``StabilityRun``) is its local-update bound,
Table 1 without T; FedSAGD's own is ``fedsagd_local_update``. For FedAdam and FedACG that is what one round
adds on the server: their local walks, from equal starts, differ by at most FedAvg's 2ηKΘ.

The proofs bound a difference by the sum of both lengths. So a repaired row holds for the method *as we run
it* (``docs/methods.md``) with any gradients of at most Θ, however the clients of the two runs differ; on
linear losses it is nearly reached. ``eta_g`` is the server's step, 1 in the paper; local rates are constant
and weight decay is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedkeel.theory.bound import Bound, Form, assemble, choose, printed, vacuous
from fedkeel.theory.checks import count, nonnegative, positive
from fedkeel.theory.conditions import Condition, above, at_most, below
from fedkeel.theory.fedsagd.worst_case import absolute_response
from fedkeel.theory.numeric import geometric


@dataclass(frozen=True, kw_only=True)
class StabilityRun:
    """K local steps of size ``eta_l`` in each of T rounds, gradients of size ``theta`` at most.

    ``participation`` is the share N/C of the clients that take part in a round; only FedDyn's row needs it.
    """

    theta: float
    eta_l: float
    K: int
    T: int = 1
    participation: float = 1.0

    def __post_init__(self) -> None:
        nonnegative("theta", self.theta)
        positive("eta_l", self.eta_l)
        count("K", self.K)
        count("T", self.T)
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation is {self.participation}: give a share above 0 and at most 1")

    @property
    def walk(self) -> float:
        """ηKΘ, the longest local walk."""
        return self.eta_l * self.K * self.theta


def theta(sigma_l2: float, sigma_g2: float, phi: float) -> float:
    """Θ = √(σ_l² + 2σ_g² + 2Φ), Lemma C.1; ``phi`` is the largest ‖∇f‖² met."""
    noise = nonnegative("sigma_l2", sigma_l2) + 2 * nonnegative("sigma_g2", sigma_g2)
    return math.sqrt(noise + 2 * nonnegative("phi", phi))


def fedavg(run: StabilityRun, *, eta_g: float = 1.0, form: Form = "repaired") -> Bound:
    """Theorem C.2: 2ηKΘT. Both forms alike."""
    return _linear("FedAvg", 2 * positive("eta_g", eta_g) * run.walk, run, form)


def fedprox(run: StabilityRun, *, lam: float, form: Form = "repaired") -> Bound:
    """Theorem C.3: (2/λ)Θ[1−(1−ηλ)^K]T, FedAvg's at λ = 0. Both forms alike."""
    return _proximal("FedProx", 2, run, lam, form)


def scaffold(run: StabilityRun, *, eta_g: float = 1.0, form: Form = "repaired") -> Bound:
    """Theorem C.4: 6ηKΘT. Both forms alike: c_i is a mean of gradients and c the mean of the c_i."""
    return _linear("SCAFFOLD", 6 * positive("eta_g", eta_g) * run.walk, run, form)


def feddyn(run: StabilityRun, *, lam: float, form: Form = "repaired") -> Bound:
    """Theorem C.5: (4/λ)Θ[1−(1−ηλ)^K]T as printed, λ being FedDyn's coefficient (α in our methods).

    That leaves out the server's −h/λ. Repaired: h_i is a weighted mean of gradients, so with p = N/C and
    π = p[1−(1−ηλ)^K] it is E‖h^t‖ ≤ Θ(1 − (1−π)^t); the moves add up to ΣD̄ = −h^T/(λp), and the server
    subtracts h^t/λ in every round:
    (2Θ/λ)·[(1 − (1−π)^T)/p + Σ_{t≤T} (1 − (1−π)^t)], about 2ΘT/λ for large T.
    """
    if printed(form):
        return _proximal("FedDyn", 4, run, lam, form)
    conditions = (
        *_stable("λ", nonnegative("lam", lam), run),
        above("λ > 0", lam, 0, "the server divides by it"),
    )
    constants = _run_constants(run) | {"lambda": lam, "participation": run.participation}
    if not all(c.holds for c in conditions):
        return vacuous(f"FedDyn ({form})", conditions, constants)
    renewal = run.participation * lam * geometric(lam, run.eta_l, run.K)
    reached = renewal * geometric(renewal, 1.0, run.T)
    terms = {
        "moves": 2 * run.theta / lam * reached / run.participation,
        "correction": 2 * run.theta / lam * (run.T - (1 - renewal) * geometric(renewal, 1.0, run.T)),
    }
    return assemble(f"FedDyn ({form})", terms, conditions, constants | {"renewal": renewal})


def fedlnag(run: StabilityRun, *, beta: float, form: Form = "repaired") -> Bound:
    """Theorem C.6: 2ηKΘT, for momentum in its (1−β) form; repaired 2ηKΘT/(1−β), for ours is b ← βb + dir."""
    if printed(form):
        nonnegative("beta", beta)
        return _linear("FedLNAG", 2 * run.walk, run, form)
    return _momentum("FedLNAG", "β", nonnegative("beta", beta), run, form, numerator=2.0)


def fedadam(run: StabilityRun, *, tau: float, eta_g: float = 1.0, form: Form = "repaired") -> Bound:
    """Theorem C.7: (2/τ)ηKΘT; repaired times η_g, the server's step, which the paper's update leaves out."""
    positive("tau", tau)
    step = choose(form, 1, positive("eta_g", eta_g))
    return _linear("FedAdam", 2 * step / tau * run.walk, run, form)


def fedcm(run: StabilityRun, *, eta_g: float = 1.0, form: Form = "repaired") -> Bound:
    """Theorem C.8: 2ΘT printed (its proof divides by η_lK on the way); repaired 2ηKη_gΘT."""
    positive("eta_g", eta_g)
    return _linear("FedCM", choose(form, 2 * run.theta, 2 * eta_g * run.walk), run, form)


def mimelite(run: StabilityRun, *, eta_g: float = 1.0, form: Form = "repaired") -> Bound:
    """Theorem C.9: 2ηKΘT. Both forms alike."""
    return _linear("MimeLite", 2 * positive("eta_g", eta_g) * run.walk, run, form)


def fedanag(run: StabilityRun, *, beta: float, eta_g: float = 1.0, form: Form = "repaired") -> Bound:
    """Theorem C.11: 2ηKΘT/(1−β). Both forms alike."""
    numerator = 2 * positive("eta_g", eta_g)
    return _momentum("FedANAG", "β", nonnegative("beta", beta), run, form, numerator=numerator)


def fedacg(run: StabilityRun, *, lam: float, form: Form = "repaired") -> Bound:
    """Theorem C.10: (4−2λ)/(1−λ)·ηKΘT; its proof would allow 2/(1−λ). Both forms alike."""
    return _momentum("FedACG", "λ", nonnegative("lam", lam), run, form, numerator=4 - 2 * lam)


def gamma(run: StabilityRun, *, lam: float, mu: float) -> float:
    """Γ = μ/(λ+μ)·(1 − (1−η(λ+μ))^K), the share of the distance that one round of FedSAGD forgets."""
    return nonnegative("mu", mu) * geometric(nonnegative("lam", lam) + mu, run.eta_l, run.K)


def fedsagd(
    run: StabilityRun, *, beta: float, lam: float, mu: float, eta_g: float = 1.0, form: Form = "repaired"
) -> Bound:
    """Table 1's last row, bounded in T where μ > 0.

    Printed: (2+2β)Θ/((λ+μ)Γ)·(1−(1−Γ)^T), which has lost the factor 1−(1−η(λ+μ))^K of Theorem C.12 (see
    ``theorem_c_12``). Repaired: 2Θ times the sum of the absolute impulse response of what the method does,
    with G = [1−(1−η(λ+μ))^K]/(λ+μ), Γ = μG and s = G/(ηK):

        δx⁺ = (1−Γ)δx − G(βδv + δg),   (1+β)δv⁺ = β(1+s)δv + s(μδx + δg).

    The server's momentum is recovered from moves that contain momentum and decay, so ‖v‖ is not bounded by
    the Θ of the paper; for small Γ the sum is about 1/μ. Without decay (μ = 0) it grows with T.
    """
    decay = nonnegative("lam", lam) + nonnegative("mu", mu)
    conditions = (*_stable("λ+μ", decay, run), below("β < 1", nonnegative("beta", beta), 1))
    g = gamma(run, lam=lam, mu=mu) if conditions[0].holds else 0.0
    constants = _run_constants(run) | {"Gamma": g, "beta": beta, "lambda": lam, "mu": mu}
    name = f"FedSAGD ({form})"
    if printed(form):
        conditions = (*conditions, above("λ+μ > 0", decay, 0, "Table 1 divides by it"))
    else:
        conditions = (*conditions, at_most("η_gΓ ≤ 1", positive("eta_g", eta_g) * g, 1))
    if not all(c.holds for c in conditions):
        return vacuous(name, conditions, constants)
    if printed(form):
        value = (2 + 2 * beta) * run.theta / decay * geometric(g, 1.0, run.T)
    else:
        reach = geometric(decay, run.eta_l, run.K)
        share = reach / (run.eta_l * run.K)
        fading = beta * (1 + share) / (1 + beta)
        zero = beta / (1 + beta)
        rest = (1 - eta_g * g + fading, fading - eta_g * g * zero)
        value = 2 * run.theta * absolute_response(eta_g * reach, zero, *rest, run.T)
    return assemble(name, {"stability": value}, conditions, constants)


def theorem_c_12(run: StabilityRun, *, beta: float, lam: float, mu: float) -> Bound:
    """Theorem C.12 as stated: (2+2β)Θ/μ·(1−(1−Γ)^T). It takes ‖v‖ ≤ Θ, which holds at β = 0 only."""
    local = fedsagd_local_update(run, beta=beta, lam=lam, mu=mu)
    if not local.holds:
        return vacuous("Theorem C.12", local.conditions, local.constants)
    rounds = geometric(gamma(run, lam=lam, mu=mu), 1.0, run.T)
    conditions = (
        *local.conditions,
        at_most("‖v‖ ≤ Θ", beta, 0, "the momentum feeds on moves that contain it"),
    )
    return assemble("Theorem C.12", {"stability": local.value * rounds}, conditions, local.constants)


def fedsagd_local_update(
    run: StabilityRun, *, beta: float, lam: float, mu: float, form: Form = "repaired"
) -> Bound:
    """FedSAGD's local-update bound (2+2β)Θ(1−(1−η(λ+μ))^K)/(λ+μ), T aside. Both forms alike.

    Clients of one round share the momentum, so the factor 2+2β is safe here without repair.
    """
    printed(form)
    conditions = _stable("λ+μ", nonnegative("lam", lam) + nonnegative("mu", mu), run)
    constants = _run_constants(run) | {"beta": nonnegative("beta", beta), "lambda": lam, "mu": mu}
    if not conditions[0].holds:
        return vacuous(f"FedSAGD local update ({form})", conditions, constants)
    value = (2 + 2 * beta) * run.theta * geometric(lam + mu, run.eta_l, run.K)
    return assemble(f"FedSAGD local update ({form})", {"stability": value}, conditions, constants)


def generalisation_gap(stability: Bound, *, lipschitz: float) -> Bound:
    """Theorem 3.5: E|R_u − R_e| ≤ ε. With an L_G-Lipschitz loss, ε is L_G times the model discrepancy."""
    scale = nonnegative("lipschitz", lipschitz)
    terms = {k: scale * v for k, v in stability.terms.items()}
    name, constants = f"Theorem 3.5 from {stability.name}", {**stability.constants, "lipschitz": scale}
    if math.isinf(stability.value):
        return Bound(math.inf, {}, stability.conditions, constants, name)
    return assemble(name, terms, stability.conditions, constants)


def _linear(method: str, a_round: float, run: StabilityRun, form: Form) -> Bound:
    printed(form)
    return assemble(f"{method} ({form})", {"stability": a_round * run.T}, (), _run_constants(run))


def _proximal(method: str, factor: float, run: StabilityRun, lam: float, form: Form) -> Bound:
    conditions = _stable("λ", nonnegative("lam", lam), run)
    if not conditions[0].holds:
        return vacuous(f"{method} ({form})", conditions, _run_constants(run) | {"lambda": lam})
    bound = _linear(method, factor * run.theta * geometric(lam, run.eta_l, run.K), run, form)
    return Bound(bound.value, bound.terms, conditions, {**bound.constants, "lambda": lam}, bound.name)


def _momentum(
    method: str, symbol: str, value: float, run: StabilityRun, form: Form, *, numerator: float
) -> Bound:
    conditions = (below(f"{symbol} < 1", value, 1, "the momentum must fade"),)
    if value >= 1:
        return vacuous(f"{method} ({form})", conditions, _run_constants(run) | {symbol: value})
    bound = _linear(method, numerator / (1 - value) * run.walk, run, form)
    return Bound(bound.value, bound.terms, conditions, {**bound.constants, symbol: value}, bound.name)


def _stable(symbol: str, value: float, run: StabilityRun) -> tuple[Condition, ...]:
    why = "a step must not overshoot the anchor"
    return (at_most(f"η_l·({symbol}) ≤ 1", run.eta_l * value, 1, why),)


def _run_constants(run: StabilityRun) -> dict[str, float]:
    return {"Theta": run.theta, "eta_l": run.eta_l, "K": float(run.K), "T": float(run.T)}
