"""Bridges between fedkeel and the NumPy reference: the same problem, cohorts and minibatches for both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch
from reference.methods import simulate
from reference.problems import LeastSquares, TinyNet
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines.client import ClientRunner
from fedkeel.running.population import Population
from fedkeel.running.session import Session, open_session
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings


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


def settings_of(task: fk.Task, federation: fk.Federation, algorithm: Any, **options: Any) -> RunSettings:
    """Return the settings of a run from `train`'s keywords; how it is executed is left out."""
    plain = {name: option for name, option in options.items() if name not in Execution.model_fields}
    return RunSettings(task=task, federation=federation, method=algorithm, **plain)


def session_of(task: fk.Task, federation: fk.Federation, algorithm: Any, **options: Any) -> Session:
    """Open a session with `train`'s keywords."""
    how = {name: option for name, option in options.items() if name in Execution.model_fields}
    return open_session(settings_of(task, federation, algorithm, **options), Execution(**how))


def runner_of(settings: RunSettings) -> ClientRunner:
    """Return what runs clients, on an oracle of its own."""
    return ClientRunner(settings, Oracle(settings.task, torch.device("cpu")))


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
    session = session_of(
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
    with closing(session):
        for row in session.rounds():
            state = session.state
            models = session.context.algorithm(state).models(state.server)
            numpy = {name: vector.numpy().copy() for name, vector in models.items()}
            played.append(
                Round(
                    row,
                    state.server,
                    numpy,
                    {client: memory.method for client, memory in session.store.items() if memory.method},
                )
            )
    return played


def expect(
    problem: Problem,
    name: str,
    *,
    rounds: int,
    cohort: int,
    work: fk.Work,
    seed: int = 0,
    absent: Callable[[int, int], bool] = lambda round, client: False,
    **knobs: Any,
) -> list[dict[str, Any]]:
    """Simulate with the reference on the cohorts and minibatches that fedkeel draws, without the `absent`."""
    settings = settings_of(
        problem.task, problem.federation, fk.FedAvg(), rounds=rounds, cohort=cohort, work=work, seed=seed
    )
    population = Population.of(settings)
    return simulate(
        name,
        problem.reference,
        problem.clients,
        problem.x0,
        rounds,
        [[i for i in population.draw(r) if not absent(r, i)] for r in range(rounds)],
        runner_of(settings).minibatches,
        work.lr,
        lr_decay=work.lr_decay,
        weight_decay=work.weight_decay,
        clip=work.clip,
        clip_on=work.clip_on,
        clip_eps=0.0,
        adamw=work.optimizer and dataclasses.astuple(work.optimizer),
        momentum=work.momentum,
        nesterov=work.nesterov,
        schedule_factor=work.schedule,
        **knobs,
    )
