"""The pilot: a short training whose models are the points where constants are measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import torch

from fedkeel.common.errors import ConfigError, Diverged
from fedkeel.methods.relaxed import Relaxed
from fedkeel.running.session import Session
from fedkeel.studies.artifacts import read_or_make, read_part, read_tensors, write_tensors
from fedkeel.tensors.vector import Vector

_RUNAWAY = 1e6  # a model this many times longer than the first is on its way to infinity
Progress = Callable[[str, int, int], None]


class PilotModel(NamedTuple):
    """The model before a round: its vector and buffers, and how far the round took it.

    `offset` is x − mean w_i over all clients (w_i a client's last end, x⁰ where it never took part), for
    relaxed methods, which remember the w_i.
    """

    round: int
    x: Vector
    buffers: Vector
    move: float
    offset: Vector | None


class Trajectory(NamedTuple):
    """Some models of a pilot, first and last among them, and how far its longest round went."""

    models: list[PilotModel]
    longest: float
    rounds: int
    problem: str | None


def run_pilot(session: Session, points: int, progress: Progress) -> Trajectory:
    """Run a session and keep its models at that many rounds, more of them early, where much happens.

    A pilot that diverges is cut there: the models before still show why.
    """
    rounds = session.context.settings.rounds
    wanted = {round(rounds * (i / (points - 1)) ** 1.5) for i in range(points)}
    models = [_pilot_model(session)]
    longest, previous, problem = 0.0, models[0], None
    limit = _RUNAWAY * (1.0 + _length(previous.x))
    with closing(session):
        try:
            for row in session.rounds():
                here = _pilot_model(session)
                if _length(here.x) > limit:
                    raise Diverged(
                        f"round {row['round']}: the model has grown past all bounds", round=here.round
                    )
                move = _length(here.x.double() - previous.x.double())
                longest = max(longest, move)
                if models[-1] is previous:
                    models[-1] = previous._replace(move=move)
                previous = here._replace(move=move)
                if here.round in wanted:
                    models.append(previous)
                progress("pilot", here.round, rounds)
        except Diverged as found:
            problem = str(found)
    if previous.round > models[-1].round:
        models.append(previous)
    if longest == 0.0:
        raise ConfigError(
            f"the pilot moved nowhere in {previous.round} rounds ({problem or 'every gradient is zero'}): "
            "there is nothing to measure; lower the learning rate or change the start"
        )
    return Trajectory(models, longest, previous.round, problem)


def save(path: Path, trajectory: Trajectory) -> None:
    """Save a finished pilot: first its models, then the rest, which marks it complete."""
    models = trajectory.models
    tensors = {f"x.{i}": model.x for i, model in enumerate(models)}
    tensors |= {f"buffers.{i}": model.buffers for i, model in enumerate(models)}
    tensors |= {f"offset.{i}": model.offset for i, model in enumerate(models) if model.offset is not None}
    write_tensors(path.with_suffix(".tensors"), tensors)
    rounds, moves = [model.round for model in models], [model.move for model in models]
    read_or_make(path, lambda: [rounds, moves, *trajectory[1:]])


def load(path: Path | None, device: torch.device) -> Trajectory | None:
    """Return a saved pilot, None where it is not complete."""
    facts = None if path is None else read_part(path)
    tensors = None if path is None or facts is None else read_tensors(path.with_suffix(".tensors"))
    if facts is None or tensors is None:
        return None
    found = {name: tensor.to(device) for name, tensor in tensors.items()}
    rounds, moves, longest, rounds_run, problem = facts
    models = [
        PilotModel(round, found[f"x.{i}"], found[f"buffers.{i}"], move, found.get(f"offset.{i}"))
        for i, (round, move) in enumerate(zip(rounds, moves, strict=True))
    ]
    return Trajectory(models, longest, rounds_run, problem)


def _length(x: Vector) -> float:
    return float(torch.linalg.vector_norm(x.double()))


def _pilot_model(session: Session) -> PilotModel:
    state = session.state
    method = session.context.algorithm(state)
    x = session.context.model(state).clone()
    offset = _offset(session, x) if isinstance(method, Relaxed) else None
    return PilotModel(state.round, x, state.buffers.clone(), 0.0, offset)


def _offset(session: Session, x: Vector) -> Vector:
    clients = session.context.population.clients
    total = session.state.x0.double() * (clients - len(session.store))
    for memory in session.store.values():
        total = total + memory.method.last.double()
    return x.double() - total / clients
