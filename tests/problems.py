"""Bridges between fedkeel and the NumPy reference: the same problem, cohorts and minibatches for both."""

from __future__ import annotations

from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch
from reference.methods import simulate
from reference.problems import LeastSquares, TinyNet
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.engines.client import minibatches
from fedkeel.running.train import open_session


def half_square(output: Tensor, target: Tensor) -> Tensor:
    return 0.5 * ((output - target) ** 2).sum(dim=-1).mean()


class Problem(NamedTuple):
    """A reference problem with its clients, and the same for fedkeel."""

    reference: Any
    clients: list[tuple[np.ndarray, np.ndarray]]
    task: fk.Task
    federation: fk.Federation
    x0: np.ndarray


def quadratic(sizes: list[int], seed: int = 0) -> Problem:
    problem = LeastSquares(4, 2, bias=True)
    return _problem(problem, nn.Linear(4, 2), half_square, {}, sizes, seed)


def tiny_net(sizes: list[int], seed: int = 0) -> Problem:
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
    problem = TinyNet(3, 5, 4)
    return _problem(problem, network, nn.functional.cross_entropy, {"accuracy": fk.accuracy}, sizes, seed)


def _problem(
    reference: Any, model: nn.Module, loss: Any, metrics: Any, sizes: list[int], seed: int
) -> Problem:
    rng = np.random.default_rng(seed)
    clients = reference.sample(sizes, rng)
    x0 = rng.normal(size=reference.size) * 0.5
    model = model.double()
    nn.utils.vector_to_parameters(torch.from_numpy(x0), model.parameters())
    federation = fk.Federation.from_arrays(clients, test=clients[0])
    return Problem(reference, clients, fk.Task(model, loss, metrics), federation, x0)


class Round(NamedTuple):
    """The state after a round."""

    row: dict[str, Any]
    server: Any
    models: dict[str, np.ndarray]
    memories: dict[int, Any]


def play(
    problem: Problem,
    algorithm: Any,
    *,
    rounds: int,
    cohort: int,
    work: fk.Work,
    engine: str = "serial",
    **options: Any,
) -> list[Round]:
    """Train with fedkeel and return the state after every round."""
    session = open_session(
        problem.task,
        problem.federation,
        algorithm,
        rounds=rounds,
        cohort=cohort,
        work=work,
        engine=engine,
        **options,
    )
    played = []
    with closing(session.loop.engine):
        for row in session.rounds():
            state = session.state
            models = session.loop.stages.parts[state.stage].method.models(state.server)
            numpy = {name: vector.numpy().copy() for name, vector in models.items()}
            played.append(Round(row, state.server, numpy, dict(session.store)))
    return played


def expect(
    problem: Problem, name: str, *, rounds: int, cohort: int, work: fk.Work, seed: int = 0, **knobs: Any
) -> list[dict[str, Any]]:
    """Simulate with the reference on the cohorts and minibatches that fedkeel draws."""
    setting = open_session(
        problem.task, problem.federation, fk.FedAvg(), rounds=rounds, cohort=cohort, work=work, seed=seed
    ).loop
    return simulate(
        name,
        problem.reference,
        problem.clients,
        problem.x0,
        rounds,
        [setting.population.draw(r) for r in range(rounds)],
        lambda r, client: minibatches(setting.setting, r, client),
        work.lr,
        lr_decay=work.lr_decay,
        weight_decay=work.weight_decay,
        clip=work.clip,
        clip_on=work.clip_on,
        clip_eps=0.0,
        **knobs,
    )
