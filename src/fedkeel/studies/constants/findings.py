"""From measurements to constants: each with its spread, its number of samples, and how it was found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedkeel.common.errors import ConfigError
from fedkeel.running.population import Population
from fedkeel.settings.run_settings import RunSettings
from fedkeel.studies.constants.estimate import Estimate, largest, smallest
from fedkeel.studies.constants.fit import Fit, fit
from fedkeel.studies.constants.measurements import GradientMeasurement, MinibatchNoise, SampleGradients
from fedkeel.studies.constants.notes import PilotFacts, notes
from fedkeel.studies.constants.pairs import Pair, Quotients, quotients
from fedkeel.studies.constants.pilot import Trajectory
from fedkeel.studies.constants.programs import tightest
from fedkeel.tensors.streams import Stream


class Measurements(NamedTuple):
    """The raw material: by model of the pilot, and within it by client."""

    gradients: Sequence[GradientMeasurement]
    noises: Sequence[Sequence[MinibatchNoise]]
    singles: Sequence[Sequence[SampleGradients]]
    curvatures: Sequence[Sequence[float]]
    pairs: Sequence[Pair]
    steepness: Sequence[Sequence[float]]
    worst: Sequence[float]


@dataclass(frozen=True)
class Findings:
    """The constants of the clients' losses along and around a pilot.

    `estimates` has L (the larger of `L_power` and `L_pairs`), L_G, sigma_l2, sigma_g2, D, U, Phi (largest
    ‖∇f‖²), mu (PL), tau1, tau2, FedInit's interpolation_a and interpolation_b, sample_gradient and
    sample_spread (of single samples), the poster's G2 and B2, and of `fit` a, b, alpha, beta. `along` is the
    mean of ⟨∇f, x − mean w_i⟩ over the pilot's models (`along_each`) for relaxed methods. `K` is the most
    local steps a client takes, `samples` their mean number of samples.
    """

    estimates: dict[str, Estimate]
    fit: Fit
    K: int
    cohort: int
    clients: int
    samples: int
    pilot_rounds: int
    start_loss: float
    losses: tuple[tuple[int, float], ...]
    tau1_by_round: tuple[tuple[int, float], ...]
    along: float | None
    along_each: tuple[float, ...]
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> float:
        """Return a constant's value."""
        return self.estimates[name].value

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "constants": {name: one.as_dict() for name, one in self.estimates.items()},
            "frontier_a_b": [list(corner) for corner in self.fit.smooth.corners],
            "frontier_alpha2_beta2": [list(corner) for corner in self.fit.lipschitz.corners],
            "frontier_pairs": [self.fit.smooth.samples, self.fit.lipschitz.samples],
            "promising": self.fit.promising,
            "K": self.K,
            "pilot_rounds": self.pilot_rounds,
            "losses": [list(point) for point in self.losses],
            "tau1_by_round": [list(point) for point in self.tau1_by_round],
            "notes": list(self.notes),
        }


def conclude(
    found: Measurements,
    path: Trajectory,
    settings: RunSettings,
    population: Population,
    weights: Sequence[float],
) -> Findings:
    """Turn measurements into constants."""
    sizes = [int(n) for n in settings.federation.sizes]
    K = max(settings.work.count(n) for n in {min(sizes), max(sizes)})
    rounds = [model.round for model in path.models]
    lowest = min(s.loss for s in found.gradients)
    if lowest < 0 or found.gradients[0].loss == 0:
        raise ConfigError(
            f"the losses go from {found.gradients[0].loss:g} to {lowest:g}: the theories take a loss of 0 or "
            "more that starts above 0; add a constant to the loss, or start elsewhere"
        )
    quotient_samples = quotients(found.pairs)
    estimates = _smoothness(found, quotient_samples) | _gradient_sizes(found) | _interpolation(found)
    by_round = _steepness(rounds, found.gradients)
    estimates["mu"] = _polyak(found.gradients)
    estimates["tau1"] = smallest([[r] for _, r in by_round], "smallest ‖∇f‖/√f of the pilot's models")
    least = 1e-24 * found.gradients[0].loss
    steep = [
        [
            *(_root(x, y) for x, y in zip(s.gradients2, s.losses, strict=True) if y > least),
            *map(math.sqrt, around),
        ]
        for s, around in zip(found.gradients, found.steepness, strict=True)
    ]
    estimates["tau2"] = largest(steep, "largest ‖∇f_i‖/√f_i along and around the pilot")
    chosen = fit(
        quotient_samples,
        tau1=estimates["tau1"].value,
        tau2=estimates["tau2"].value,
        sigma2=estimates["sigma_l2"].value,
        K=K,
        stream=Stream(settings.seed).branch("halves"),
    )
    estimates |= {"a": chosen.a, "b": chosen.b, "alpha": chosen.alpha, "beta": chosen.beta}
    losses = tuple(zip(rounds, (s.loss for s in found.gradients), strict=True))
    along = [s.along for s in found.gradients[1:] if s.along is not None]
    kinks = estimates["L_pairs"].value / max(estimates["L_power"].value, 1e-300)
    facts = PilotFacts(
        losses, by_round, len(weights), population.clients, settings.work, chosen.promising, kinks
    )
    return Findings(
        estimates=estimates,
        fit=chosen,
        K=K,
        cohort=population.size,
        clients=population.clients,
        samples=max(1, round(float(np.mean(sizes)))),
        pilot_rounds=path.rounds,
        start_loss=found.gradients[0].loss,
        losses=losses,
        tau1_by_round=by_round,
        along=sum(along) / len(along) if along else None,
        along_each=tuple(along),
        notes=notes(facts, path.problem),
    )


def _polyak(gradients: Sequence[GradientMeasurement]) -> Estimate:
    """Return μ of μ(f − f*) ≤ ‖∇f‖² with f* = 0, the lowest a loss can be; a higher f* gives a larger μ."""
    first, best = gradients[0].loss, min(s.loss for s in gradients)
    safe = [s.gradient2 / s.loss for s in gradients if s.loss > 1e-24 * first]
    above = [s.gradient2 / (s.loss - best) for s in gradients if s.loss - best > 1e-9 * first]
    how = "smallest ‖∇f‖²/f of the pilot's models (f* = 0); to: with f* the pilot's lowest loss"
    value = min(safe, default=0.0)
    return Estimate(value, value, max(value, min(above, default=value)), len(gradients), how)


def _steepness(
    rounds: Sequence[int], gradients: Sequence[GradientMeasurement]
) -> tuple[tuple[int, float], ...]:
    """Return ‖∇f‖/√f by round, where the loss is more than rounding."""
    least = 1e-24 * gradients[0].loss
    pairs = zip(rounds, gradients, strict=True)
    found = tuple((r, math.sqrt(s.gradient2 / s.loss)) for r, s in pairs if s.loss > max(least, 0.0))
    return found or ((rounds[0], 0.0),)


def _smoothness(found: Measurements, quotient_samples: Quotients) -> dict[str, Estimate]:
    power = largest(found.curvatures, "power iteration on Hessian-vector products, client and model")
    quotient = np.sqrt(quotient_samples.lipschitz[1])
    pairs = Estimate(
        float(quotient.max()),
        float(quotient.min()),
        float(quotient.max()),
        len(quotient),
        "largest ‖∇f_i(W) − ∇f_i(U)‖/‖W − U‖ of sampled pairs; spread: all pairs",
    )
    top = max(power, pairs)
    low, count = min(power.value, pairs.value), power.samples + pairs.samples
    both = Estimate(top.value, low, top.value, count, "the larger of L_power and L_pairs")
    return {"L": both, "L_power": power, "L_pairs": pairs}


def _gradient_sizes(found: Measurements) -> dict[str, Estimate]:
    gradients, noises = found.gradients, found.noises
    draws = sum(n.draws for group in noises for n in group)
    longest = [
        [*(math.sqrt(x) for x in s.gradients2), *(n.longest for n in group)]
        for s, group in zip(gradients, noises, strict=True)
    ]
    losses = [s.loss for s in gradients]
    first, best = losses[0], min(losses)
    variance = largest([[n.variance for n in group] for group in noises], "")
    kind = "largest E‖g − ∇f_i‖² of a client's minibatches; spread: by model"
    if draws == 0:
        kind = "every step takes all of a client's data: no noise"
    return {
        "L_G": largest(longest, "longest client or minibatch gradient; spread: by model"),
        "sigma_l2": variance._replace(samples=draws, how=kind),
        "sigma_g2": largest([[s.spread] for s in gradients], "largest mean ‖∇f_i − ∇f‖² of a model"),
        "Phi": largest([[s.gradient2] for s in gradients], "largest ‖∇f‖² of a model"),
        "D": Estimate(
            max(0.0, first - best),
            max(0.0, first - best),
            max(0.0, first - min(0.0, best)),
            len(losses),
            "first loss − best of the pilot, at most the first loss, which the bounds take",
        ),
        "U": largest([[x] for x in found.worst], "largest loss of a sample at the first, middle, last model"),
    }


def _interpolation(found: Measurements) -> dict[str, Estimate]:
    singles, noisy = found.singles, any(n.draws for group in found.noises for n in group)
    ratios = [[_root(one.longest2, one.gradient2) if noisy else 1.0 for one in group] for group in singles]
    alike = "largest ‖g_z‖/‖∇f_i‖ of a sample" if noisy else "every step takes all of a client's data"
    apart = [[_root(x, s.gradient2) for x in s.gradients2] for s in found.gradients]
    own = np.array([s.gradient2 for s in found.gradients])
    mean = np.array([s.square for s in found.gradients])
    pair = tightest(own, mean, least_p=1.0)
    how = "E‖∇f_i‖² ≤ G² + B²‖∇f‖² on all models, least slack in all"
    plain = float(np.max(mean))
    ratio = float(np.max(mean / np.maximum(own, 1e-300)))
    return {
        "interpolation_a": _counted(largest(ratios, alike), singles),
        "sample_gradient": _counted(
            largest([[one.longest2**0.5 for one in group] for group in singles], "longest ‖g_z‖ of a sample"),
            singles,
        ),
        "sample_spread": _counted(
            largest(
                [[one.apart2**0.5 for one in group] for group in singles], "largest ‖g_z − ∇f_i‖ of a sample"
            ),
            singles,
        ),
        "interpolation_b": largest(apart, "largest ‖∇f_i‖/‖∇f‖"),
        "G2": Estimate(pair.q, 0.0, plain, len(own), f"{how}; spread: with B² from its largest to 1"),
        "B2": Estimate(pair.p, 1.0, max(ratio, pair.p), len(own), f"{how}; spread: 1 to its value at G² = 0"),
    }


def _counted(one: Estimate, singles: Sequence[Sequence[SampleGradients]]) -> Estimate:
    """Return an estimate with the number of samples behind it."""
    return one._replace(samples=sum(each.taken for group in singles for each in group))


def _root(above: float, below: float) -> float:
    if below > 0:
        return math.sqrt(above / below)
    return math.inf if above > 0 else 0.0
