"""How many rounds a target needs: with the run's steps, and with the best steps there are."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory.advice.inputs import AdviceInputs
from fedkeel.theory.bound import Bound

_GRID = 40
_LEAST = 1e-20
_SPAN = 8.0  # powers of ten below the largest steps that are looked at


class PredictedRounds(NamedTuple):
    """Steps, the rounds to ε they promise (inf: nothing is promised) and where the gap stops."""

    steps: bs.Steps | None
    rounds: float
    floor: float
    reason: str

    @property
    def reachable(self) -> bool:
        """Whether ε is reached."""
        return math.isfinite(self.rounds)


def as_run(g: AdviceInputs) -> PredictedRounds:
    """Corollary 4.8 (repaired) with the run's own steps."""
    bound = bs.corollary_4_8(g.here, g.steps, gap_0=g.gap_0, epsilon=g.epsilon)
    rounds = bound.guaranteed if bound.value < math.inf else math.inf
    return PredictedRounds(g.steps, rounds, bs.floor(g.here, g.steps), _reason(bound))


def best_steps(g: AdviceInputs) -> PredictedRounds:
    """Steps whose floor lies below ε/2 and that need few rounds, by a search over both.

    The fewest rounds belong to tiny local steps with a huge global one, which is no federated run any more;
    so of all steps within twice the fewest rounds, those with the largest local step are taken.
    """
    largest = bs.largest_local_step(g.semi, g.K)
    if largest <= _LEAST:
        why = "no step is safe: τ1 is zero" if g.semi.tau1 == 0 else "no step is safe: a or α is too large"
        return PredictedRounds(None, math.inf, math.inf, why)
    found = [_promise(g, largest, i, j) for i in range(_GRID) for j in range(_GRID)]
    lowest = min(one.floor for one in found)
    good = [one for one in found if one.reachable]
    if good:
        fewest = min(one.rounds for one in good)
        return next(one for one in good if one.rounds <= 2 * fewest)  # the largest local step comes first
    why = f"ε = {g.epsilon:.3g} lies below twice the lowest floor, {lowest:.3g}: give ε ≥ {2 * lowest:.3g}"
    return PredictedRounds(None, math.inf, lowest, why)


def _promise(g: AdviceInputs, largest: float, i: int, j: int) -> PredictedRounds:
    eta_l = 0.5 * largest * 10 ** (-_SPAN * i / _GRID)
    eta_g = bs.fastest_global_step(g.semi, g.K, eta_l) * 10 ** (-_SPAN * j / _GRID)
    if not _LEAST < eta_g < 1e20:
        return PredictedRounds(None, math.inf, math.inf, "the loss has no curvature to measure a step by")
    steps = bs.Steps(K=g.K, eta_l=eta_l, eta_g=eta_g)
    bound = bs.corollary_4_8(g.semi, steps, gap_0=g.gap_0, epsilon=g.epsilon)
    return PredictedRounds(steps, bound.guaranteed, bs.floor(g.semi, steps), _reason(bound))


def _reason(bound: Bound) -> str:
    return "; ".join(f"{c.name} is {c.verdict}" for c in bound.violated)
