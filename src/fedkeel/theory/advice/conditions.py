"""Each theorem's bound for the run, and each of its conditions."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory import fedinit as fi
from fedkeel.theory import fedsagd as fs
from fedkeel.theory import rethinking
from fedkeel.theory.advice.inputs import AdviceInputs
from fedkeel.theory.bound import Bound
from fedkeel.theory.conditions import Condition, at_least


class TheoremCheck(NamedTuple):
    """A theorem, what it bounds, its value here (inf: void) and its conditions."""

    theorem: str
    bounds: str
    value: float
    conditions: tuple[Condition, ...]

    @property
    def holds(self) -> bool:
        """Whether all conditions hold."""
        return all(c.holds for c in self.conditions)


def theorem_checks(g: AdviceInputs) -> tuple[TheoremCheck, ...]:
    """Every theorem of the four papers on this run, repaired form."""
    everyone = at_least("all clients active", g.N, g.C, "Beyond smoothness has no sampling of clients")
    return (
        _of(bs.theorem_4_7(g.here, g.steps, gap_0=g.gap_0, r=g.T), "loss after T rounds", everyone),
        *_noiseless(g, everyone),
        *_relaxed(g),
        _of(
            fs.theorem_4_1(g.accelerated, T=g.T, D_0=g.D, sigma_l2=g.sigma_l2, sigma_g2=g.sigma_g2),
            "FedSAGD, mean ‖∇f(z)‖², every hidden constant 1",
        ),
        TheoremCheck(
            f"Rethinking, Proposition 1, α = {g.dyn_alpha:g}",
            "the round from which FedDyn's correction costs more than it brings",
            math.inf,
            (rethinking.alpha_condition(g.L, g.dyn_alpha),),
        ),
    )


def _noiseless(g: AdviceInputs, everyone: Condition) -> tuple[TheoremCheck, ...]:
    if g.sigma_l2 > 0:
        return ()
    bound = bs.deterministic(g.here, g.steps, gap_0=g.gap_0, r=g.T)
    return (_of(bound, "loss after T rounds, full gradients", everyone),)


def _relaxed(g: AdviceInputs) -> tuple[TheoremCheck, ...]:
    run, local, across = g.relaxed_run(), g.sigma_l2, g.sigma_g2
    first = fi.theorem_1(run, sigma_l2=local, sigma_g2=across, dropped=g.dropped)
    apart = fi.theorem_17(run, sigma_l2=local, sigma_g2=across, dropped=g.dropped)
    found = [_of(first, "mean ‖∇f‖²"), _of(apart, "mean divergence Δ")]
    if g.mu:
        fourth = fi.theorem_4(run, mu=g.mu, sigma_l2=local, sigma_g2=across, dropped=g.dropped_largest)
        found.append(_of(fourth, "f − f* after T rounds, PL"))
    if g.inter is not None:
        found += _interpolation(g)
    if g.U > 0 and g.sample_spread is not None:
        bound = fi.theorem_12(g.sampling, beta=g.beta, L=g.L, U=g.U, sample_spread=g.sample_spread)
        found.append(_of(bound, "generalisation error, η = c/t"))
    return tuple(found)


def _interpolation(g: AdviceInputs) -> list[TheoremCheck]:
    assert g.inter is not None
    (a, b), run = g.inter, g.relaxed_run()
    found = [_of(fi.theorem_6(run, a=a, b=b, dropped=g.dropped), "mean ‖∇f‖², interpolation")]
    if g.mu:
        ninth = fi.theorem_9(run, mu=g.mu, a=a, b=b, dropped=g.dropped_largest)
        found.append(_of(ninth, "f − f* after T rounds, interpolation and PL"))
    return found


def _of(bound: Bound, what: str, *more: Condition) -> TheoremCheck:
    return TheoremCheck(bound.name.removesuffix(" (repaired)"), what, bound.value, (*more, *bound.conditions))
