"""The known mistakes of other systems, planted into our own methods: the suite must see each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import expect, play, tiny_net

import fedkeel as fk
from fedkeel.algorithm import Plan, method

WORK = fk.Work(epochs=2, batch_size=3, lr=0.08, lr_decay=0.7, weight_decay=0.02)
RAGGED = [3, 8, 5, 11, 4]


@method
class ForgetsControl(fk.SCAFFOLD):
    """c_i is never stored between rounds."""

    def finish(self, walk: Any, down: Any, client: Any, facts: fk.Facts) -> Any:
        return super().finish(walk, down, client, facts)[0], client


@method
class ControlFromWeights(fk.SCAFFOLD):
    """Control variates initialised to the weights."""

    def enlist(self, x0: Any) -> Any:
        return self.Client(x0)


@method
class DropsShareOfC(fk.SCAFFOLD):
    """c moves by the cohort's mean, as if all clients had taken part."""

    def aggregate(self, server: Any, mean: Any, cohort: Any) -> Any:
        return super().aggregate(server, mean, cohort._replace(share=1.0))


@method
class UndecayedRate(fk.SCAFFOLD):
    """Divides by K times the first round's rate."""

    def finish(self, walk: Any, down: Any, client: Any, facts: fk.Facts) -> Any:
        return super().finish(walk._replace(length=walk.steps * WORK.lr), down, client, facts)


@method
class FirstClientsSteps(fk.SCAFFOLD):
    """Takes K from the first client for everyone."""

    def finish(self, walk: Any, down: Any, client: Any, facts: fk.Facts) -> Any:
        return super().finish(walk._replace(length=walk.length / walk.steps * 2), down, client, facts)


@method
class NoGradientOfPenalty(fk.FedDyn):
    """The penalty is computed on detached data, so its gradient is zero."""

    def plan(self, down: Any, client: Any, facts: fk.Facts) -> Plan:
        return Plan(start=down.x)


@method
class NoAlphaY(fk.FedDyn):
    """The +α·y half of the pull is missing."""

    def plan(self, down: Any, client: Any, facts: fk.Facts) -> Plan:
        return Plan(start=down.x, push=-client.h_i - self.alpha * down.x)


@method
class NoOneOverAlpha(fk.FedDyn):
    """The server's 1/α is missing."""

    def aggregate(self, server: Any, mean: Any, cohort: Any) -> Any:
        right = super().aggregate(server, mean, cohort)
        return right._replace(x=right.gamma - right.h)


@method
class DropsShareOfH(fk.FedDyn):
    """h moves by the cohort's mean, as if all clients had taken part."""

    def aggregate(self, server: Any, mean: Any, cohort: Any) -> Any:
        return super().aggregate(server, mean, cohort._replace(share=1.0))


@method
class UnsquaredProx(fk.FedProx):
    """The norm in the proximal term is not squared: its gradient has length μ, not μ·‖y − x‖."""

    def plan(self, down: Any, client: Any, facts: fk.Facts) -> Plan:
        return Plan(start=down.x, push=self.mu * down.x / down.x.norm())


@method
class BiasCorrectedAdam(fk.FedAdam):
    """Adam's bias correction, where the method has none."""

    def aggregate(self, server: Any, mean: Any, cohort: Any) -> Any:
        right = super().aggregate(server, mean, cohort)
        correction = 1 - self.beta1 ** (cohort.round + 1)
        return right._replace(x=server.x + self.lr * right.m / correction / (right.v.sqrt() + self.tau))


MUTANTS = [
    (ForgetsControl(), "SCAFFOLD", {}),
    (ControlFromWeights(), "SCAFFOLD", {}),
    (DropsShareOfC(), "SCAFFOLD", {}),
    (UndecayedRate(), "SCAFFOLD", {}),
    (FirstClientsSteps(), "SCAFFOLD", {}),
    (NoGradientOfPenalty(0.4), "FedDyn", {"alpha": 0.4}),
    (NoAlphaY(0.4), "FedDyn", {"alpha": 0.4}),
    (NoOneOverAlpha(0.4), "FedDyn", {"alpha": 0.4}),
    (DropsShareOfH(0.4), "FedDyn", {"alpha": 0.4}),
    (UnsquaredProx(0.3), "FedProx", {"mu": 0.3}),
    (BiasCorrectedAdam(), "FedAdam", {}),
]


def largest_difference(algorithm: Any, name: str, knobs: dict[str, Any]) -> float:
    problem = tiny_net(RAGGED)
    played = play(problem, algorithm, rounds=6, cohort=2, work=WORK)
    expected = expect(problem, name, rounds=6, cohort=2, work=WORK, **knobs)
    return max(
        float(np.abs(ours.models["x"] - theirs["x"]).max())
        for ours, theirs in zip(played, expected, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "name", "knobs"), MUTANTS, ids=lambda v: type(v).__name__)
def test_the_reference_sees_the_mistake(mutant: Any, name: str, knobs: dict[str, Any]) -> None:
    right = getattr(fk, name)(**knobs)
    assert largest_difference(right, name, knobs) < 1e-10
    assert largest_difference(mutant, name, knobs) > 1e-6
