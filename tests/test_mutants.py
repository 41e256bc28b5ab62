"""The known mistakes of other systems, planted into our own methods: the suite must see each of them.

docs/errata.md names the mutant of every row.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from problems import expect, play, session_of, tiny_net
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.core.algorithm import Objective, Plan, method
from fedkeel.running import round as rounds
from fedkeel.tensors.vector import Vector

WORK = fk.Work(epochs=2, batch_size=3, lr=0.08, lr_decay=0.7, weight_decay=0.02)
RAGGED = [3, 8, 5, 11, 4]
UNDIVIDED = [5] * 5  # equal sizes that the batch size does not divide
ERRATA = (Path(__file__).parents[1] / "docs" / "errata.md").read_text()


@method
class ForgetsControl(fk.SCAFFOLD):
    """c_i is never stored between rounds."""

    def finish(self, walk: Any, down: Any, client: Any, facts: fk.Facts) -> Any:
        return super().finish(walk, down, client, facts)[0], client


@method
class ControlFromWeights(fk.SCAFFOLD):
    """Control variates initialised to the weights of a network, the server's and the clients' alike."""

    def init(self, x: Any) -> Any:
        return self.Server(x, x)

    def init_client(self, x0: Any) -> Any:
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
class StepsNotRoundedUp(fk.SCAFFOLD):
    """Takes samples / batch size for the steps of an epoch, also where that is no whole number."""

    def finish(self, walk: Any, down: Any, client: Any, facts: fk.Facts) -> Any:
        steps = WORK.epochs * UNDIVIDED[0] / WORK.batch_size
        return super().finish(walk._replace(length=walk.length / walk.steps * steps), down, client, facts)


@method
class SignOfControl(fk.SCAFFOLD):
    """The walk's mean direction enters c_i with the opposite sign: y − x for x − y."""

    def finish(self, walk: Any, down: Any, client: Any, facts: fk.Facts) -> Any:
        c_i = client.c_i - down.c - walk.direction
        return self.Up(walk.end - down.x, c_i - client.c_i), self.Client(c_i)


BUFFER: dict[str, Tensor] = {}


@method
class OneBufferForAll(fk.SCAFFOLD):
    """All clients that have a c_i keep it in one buffer, so that they read the last one written."""

    def init(self, x: Any) -> Any:
        BUFFER.clear()
        return super().init(x)

    def plan(self, down: Any, client: Any, facts: fk.Facts) -> Plan:
        return super().plan(down, self.aliased(client), facts)

    def finish(self, walk: Any, down: Any, client: Any, facts: fk.Facts) -> Any:
        up, after = super().finish(walk, down, self.aliased(client), facts)
        BUFFER["c_i"] = after.c_i
        return up, after

    def aliased(self, client: Any) -> Any:
        return self.Client(BUFFER["c_i"]) if client.c_i.any() else client


@method
class NeverCorrects(fk.SCAFFOLD):
    """The correction c − c_i is computed and never reaches the gradient."""

    def plan(self, down: Any, client: Any, facts: fk.Facts) -> Plan:
        return Plan(start=down.x)


@method
class SendsControl(fk.SCAFFOLD):
    """Sends c_i where the server adds a change of c_i."""

    def finish(self, walk: Any, down: Any, client: Any, facts: fk.Facts) -> Any:
        up, after = super().finish(walk, down, client, facts)
        return up._replace(delta_c=after.c_i), after


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
    """The norm in the proximal term is not squared, tensor by tensor: (μ/2)·Σ‖y_t − x_t‖ over the tensors.

    The pull on each tensor has length μ/2 at any distance.
    """

    TENSORS = (15, 5, 20, 4)  # of tiny_net

    class Sent(NamedTuple):
        x: Vector

    def plan(self, down: Any, client: Any, facts: fk.Facts) -> Plan:
        return Plan(start=down.x, objective=Objective(self.distance, self.Sent(down.x)))

    def distance(self, forward: Any, y: Vector, batch: tuple[Tensor, Tensor], context: Any) -> Tensor:
        moved = (y - context.x).split(self.TENSORS, dim=-1)
        return self.mu / 2 * sum(torch.linalg.vector_norm(part) for part in moved)


@method
class BiasCorrectedAdam(fk.FedAdam):
    """Adam's bias correction, where the method has none, with rounds from 1 and the exponent round + 1."""

    def aggregate(self, server: Any, mean: Any, cohort: Any) -> Any:
        right = super().aggregate(server, mean, cohort)
        power = cohort.round + 2
        correction = (1 - self.beta2**power) ** 0.5 / (1 - self.beta1**power)
        return right._replace(x=server.x + self.lr * correction * right.m / (right.v.sqrt() + self.tau))


MUTANTS = [
    (ForgetsControl(), "SCAFFOLD", {}),
    (ControlFromWeights(), "SCAFFOLD", {}),
    (DropsShareOfC(), "SCAFFOLD", {}),
    (UndecayedRate(), "SCAFFOLD", {}),
    (FirstClientsSteps(), "SCAFFOLD", {}),
    (StepsNotRoundedUp(), "SCAFFOLD", {}),
    (SignOfControl(), "SCAFFOLD", {}),
    (OneBufferForAll(option="I"), "SCAFFOLD", {"option": "I"}),
    (NeverCorrects(), "SCAFFOLD", {}),
    (SendsControl(), "SCAFFOLD", {}),
    (NoGradientOfPenalty(0.4), "FedDyn", {"alpha": 0.4}),
    (NoAlphaY(0.4), "FedDyn", {"alpha": 0.4}),
    (NoOneOverAlpha(0.4), "FedDyn", {"alpha": 0.4}),
    (DropsShareOfH(0.4), "FedDyn", {"alpha": 0.4}),
    (UnsquaredProx(0.3), "FedProx", {"mu": 0.3}),
    (BiasCorrectedAdam(), "FedAdam", {}),
]


def largest_difference(algorithm: Any, name: str, knobs: dict[str, Any]) -> float:
    problem = tiny_net(UNDIVIDED if isinstance(algorithm, StepsNotRoundedUp) else RAGGED)
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


def test_where_the_correction_never_reaches_the_gradient_scaffold_is_fedavg() -> None:
    assert largest_difference(NeverCorrects(), "FedAvg", {}) < 1e-10


def test_steps_that_are_not_rounded_up_do_no_harm_where_the_batch_size_divides() -> None:
    problem = tiny_net([6] * 5)
    right, wrong = (
        play(problem, one, rounds=4, cohort=2, work=WORK)[-1].models["x"]
        for one in (fk.SCAFFOLD(), DividedSteps())
    )
    assert np.abs(right - wrong).max() < 1e-12


@method
class DividedSteps(fk.SCAFFOLD):
    """`StepsNotRoundedUp` on clients of six samples, which the batch size divides."""

    def finish(self, walk: Any, down: Any, client: Any, facts: fk.Facts) -> Any:
        steps = WORK.epochs * 6 / WORK.batch_size
        return super().finish(walk._replace(length=walk.length / walk.steps * steps), down, client, facts)


def test_the_pull_of_the_unsquared_norm_has_the_length_mu_over_two_in_each_tensor() -> None:
    sizes = [tensor.numel() for tensor in tiny_net([3]).task.model.parameters()]
    assert sizes == list(UnsquaredProx.TENSORS)
    x = torch.zeros(sum(sizes), dtype=torch.float64)
    y = torch.arange(1.0, 1 + sum(sizes), dtype=torch.float64).requires_grad_()
    (pull,) = torch.autograd.grad(UnsquaredProx(0.3).distance(None, y, (x, x), UnsquaredProx.Sent(x)), y)
    for part, moved in zip(pull.split(sizes), y.detach().split(sizes), strict=True):
        torch.testing.assert_close(part, 0.15 * moved / moved.norm())


def buffers_after_a_round() -> tuple[Tensor, Tensor]:
    """BatchNorm's running mean after one round of two clients, each one step, and what it has to be."""
    clients = [(np.full((4, 2), value), np.zeros((4, 1))) for value in (1.0, 5.0)]
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).double()
    task = fk.Task.regression(model)
    federation = fk.Federation.from_arrays(clients, test=clients[0])
    work = fk.Work(steps=1, batch_size=None, lr=0.01)
    session = session_of(task, federation, fk.FedAvg(), rounds=1, cohort=2, work=work, engine="serial")
    with contextlib.closing(session):
        list(session.rounds())
        found = session.state.buffers[:2]
    return found, torch.full((2,), 0.1 * (1.0 + 5.0) / 2, dtype=found.dtype)


def test_batchnorms_buffers_are_averaged_and_the_check_sees_when_they_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.testing.assert_close(*buffers_after_a_round())
    right = rounds.aggregate

    def buffers_not_averaged(context: Any, state: Any, request: Any, result: Any) -> Any:
        return right(context, state, request, result)._replace(buffers=state.buffers)

    monkeypatch.setattr(rounds, "aggregate", buffers_not_averaged)
    found, expected = buffers_after_a_round()
    assert (found - expected).abs().max() > 0.1


def errata_rows() -> list[list[str]]:
    """Return the cells of the table of other systems."""
    table = ERRATA[ERRATA.index("## In other systems") : ERRATA.index("## In fedkeel")]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def test_every_row_of_the_errata_names_its_mutant_or_says_why_there_is_none() -> None:
    planted = {type(mutant).__name__ for mutant, _, _ in MUTANTS} | {"buffers_not_averaged"}
    rows = errata_rows()
    assert len(rows) >= 15
    named: set[str] = set()
    for row in rows:
        names = set(re.findall(r"`(\w+)`", row[-1]))
        assert names or re.match(r"none: \w+", row[-1]), row
        assert names <= planted, row
        named |= names
    ours = {"NoOneOverAlpha", "DropsShareOfH"}  # belong to no row of the errata
    assert named | ours == planted
