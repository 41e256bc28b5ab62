"""Where theory and practice differ, in sentences with this run's numbers."""

from __future__ import annotations

import math

from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory import fedinit as fi
from fedkeel.theory import fedsagd as fs
from fedkeel.theory import rethinking
from fedkeel.theory.advice.inputs import AdviceInputs
from fedkeel.theory.advice.ranges import local_limits
from fedkeel.theory.advice.rounds import best_steps


def caveats(g: AdviceInputs) -> tuple[str, ...]:
    """Return what a reader should know before believing either side."""
    return (
        *_uncovered(g),
        *_steps(g),
        *_relaxation(g),
        *_noise(g),
        *_generalisation(g),
        *_stability(g),
        _feddyn(g),
    )


def _uncovered(g: AdviceInputs) -> list[str]:
    if not g.uncovered:
        return []
    return [
        f"No theorem here covers {' or '.join(g.uncovered)}: ranges, rounds and guarantees are those of the "
        "same run with plain SGD."
    ]


def _steps(g: AdviceInputs) -> list[str]:
    safe = max(one.limit for one in local_limits(g))
    found = []
    if g.eta_l > safe:
        found.append(
            f"The local rate {g.eta_l:g} is {g.eta_l / safe:.3g} times the largest rate any of the theorems "
            f"allows ({safe:.3g}). Runs at such rates often work; the theorems are silent about them."
        )
    if g.N < g.C:
        found.append(
            f"Theorem 4.7 has all clients active; here {g.N} of {g.C} are, so its rate is not a promise "
            "even where its other conditions hold."
        )
    prospect = best_steps(g)
    if prospect.steps is not None and prospect.rounds > 100 * g.T:
        found.append(
            f"With the safest-fastest steps the theory needs {prospect.rounds:.2g} rounds to a loss of "
            f"{g.epsilon:.3g}, against the {g.T} planned: its rate is of worst cases, not of this run."
        )
    return found


def _relaxation(g: AdviceInputs) -> list[str]:
    found = []
    usual = abs(g.beta) if g.beta else 0.1
    first, apart = fi.beta_limit(g.N, g.C), fi.beta_limit_divergence(g.N, g.C)
    interpolation = fi.beta_limit_interpolation(g.N, g.C)
    if usual >= first:
        name = "the usual β = 0.1" if usual == 0.1 else f"β = {usual:g}"
        inside = "inside" if usual < interpolation else "outside"
        found.append(
            f"Relaxed initialisation: {name} lies outside Theorem 1's range |β| < {first:#.3g} and Theorem "
            f"17's |β| < {apart:#.3g} ({inside} the {interpolation:#.3g} of the interpolation theorems); the "
            "gains reported in practice are not covered."
        )
    growth = usual * g.C / g.N
    if growth > 1:
        found.append(
            f"β·C/N = {usual:g}·{g.C}/{g.N} = {growth:.3g} > 1: a client's last model is so old that the "
            "relaxed start can push x away for good; no theorem shows this. beta=Adaptive() keeps β below "
            f"N/C = {g.N / g.C:.3g} and lowers it where moves are noise; a constant β of that size still "
            "multiplies noise: watch the column `norm`."
        )
    if g.N < g.C and g.beta:
        size = (
            "was not measured (the pilot's method is not relaxed)"
            if g.dropped is None
            else f"averages {g.dropped:.3g} here"
        )
        found.append(
            f"FedInit's proofs drop β⟨∇f, x − mean w_i⟩, zero only when all clients take part; it {size}."
        )
    return found


def _noise(g: AdviceInputs) -> list[str]:
    if g.sigma_l2 == 0:
        return ["Every step takes all of a client's data: σ_l² = 0, the floor of Theorem 4.7 is zero."]
    rate = bs.rate(g.here, g.steps)
    if rate <= 0:
        return []
    lowest = bs.floor(g.here, g.steps)
    if lowest > g.gap_0:
        return [
            f"At these steps Theorem 4.7's floor is {lowest:.3g}, above the first loss ({g.gap_0:.3g}): it "
            "says nothing until steps or σ² shrink. σ² is the largest on the way; near interpolation it "
            "falls with the loss, which the theorem does not use."
        ]
    return []


def _generalisation(g: AdviceInputs) -> list[str]:
    if g.sample_spread is not None:
        return []
    return [
        "Theorem 12 is left out: it needs the largest distance of a sample's gradient from its client's mean "
        "(sample_spread), which was not measured; σ_l is an average and does not bound it."
    ]


def _stability(g: AdviceInputs) -> list[str]:
    walk = fs.fedavg(g.stability_run).value
    if not math.isfinite(walk):
        return []
    return [
        f"The stability bounds add up the longest possible walks (FedAvg: {walk:.3g} after {g.T} rounds) and "
        "grow with T for all methods but FedSAGD; what a run really does, the stability study measures."
    ]


def _feddyn(g: AdviceInputs) -> str:
    limit = rethinking.alpha_threshold(g.L)
    return (
        f"FedDyn's switching rule needs κ_0 > 0, that is α > 26.9·L = {limit:.3g}; practical α (0.01 to 0.1) "
        f"never meet it, here {g.dyn_alpha:g} misses it {limit / g.dyn_alpha:.3g} times."
    )
