"""The pilot: a short training whose models are the places where constants are measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import torch

from fedkeel.errors import ConfigError, Diverged
from fedkeel.methods.relaxed import Relaxed
from fedkeel.running.session import Session
from fedkeel.studies.artifacts import read_or_make as kept
from fedkeel.studies.artifacts import read_part, read_tensors
from fedkeel.studies.artifacts import write_tensors as keep_tensors
from fedkeel.vector import Vector

_RUNAWAY = 1e6  # a model this many times longer than the first is on its way to infinity
Progress = Callable[[str, int, int], None]


class Stop(NamedTuple):
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

    stops: list[Stop]
    longest: float
    rounds: int
    problem: str | None


def travel(session: Session, points: int, progress: Progress) -> Trajectory:
    """Play a session and keep its models at that many rounds, more of them early, where much happens.

    A pilot that diverges is cut there: the models before still tell why.
    """
    rounds = session.context.settings.rounds
    wanted = {round(rounds * (i / (points - 1)) ** 1.5) for i in range(points)}
    stops = [_stop(session)]
    longest, previous, problem = 0.0, stops[0], None
    limit = _RUNAWAY * (1.0 + _length(previous.x))
    with closing(session):
        try:
            for row in session.rounds():
                here = _stop(session)
                if _length(here.x) > limit:
                    raise Diverged(
                        f"round {row['round']}: the model has grown past all bounds", round=here.round
                    )
                move = _length(here.x.double() - previous.x.double())
                longest = max(longest, move)
                if stops[-1] is previous:
                    stops[-1] = previous._replace(move=move)
                previous = here._replace(move=move)
                if here.round in wanted:
                    stops.append(previous)
                progress("pilot", here.round, rounds)
        except Diverged as found:
            problem = str(found)
    if previous.round > stops[-1].round:
        stops.append(previous)
    if longest == 0.0:
        raise ConfigError(
            f"the pilot moved nowhere in {previous.round} rounds ({problem or 'every gradient is zero'}): "
            "there is nothing to measure; lower the learning rate or change the start"
        )
    return Trajectory(stops, longest, previous.round, problem)


def keep(path: Path, trajectory: Trajectory) -> None:
    """Keep a finished pilot: its models, then, which makes it whole, what else is known of it."""
    stops = trajectory.stops
    tensors = {f"x.{i}": stop.x for i, stop in enumerate(stops)}
    tensors |= {f"buffers.{i}": stop.buffers for i, stop in enumerate(stops)}
    tensors |= {f"offset.{i}": stop.offset for i, stop in enumerate(stops) if stop.offset is not None}
    keep_tensors(path.with_suffix(".tensors"), tensors)
    rounds, moves = [stop.round for stop in stops], [stop.move for stop in stops]
    kept(path, lambda: [rounds, moves, *trajectory[1:]])


def read(path: Path | None, device: torch.device) -> Trajectory | None:
    """Return a pilot that is kept whole."""
    facts = None if path is None else read_part(path)
    tensors = None if path is None or facts is None else read_tensors(path.with_suffix(".tensors"))
    if facts is None or tensors is None:
        return None
    found = {name: tensor.to(device) for name, tensor in tensors.items()}
    rounds, moves, longest, played, problem = facts
    stops = [
        Stop(round, found[f"x.{i}"], found[f"buffers.{i}"], move, found.get(f"offset.{i}"))
        for i, (round, move) in enumerate(zip(rounds, moves, strict=True))
    ]
    return Trajectory(stops, longest, played, problem)


def _length(x: Vector) -> float:
    return float(torch.linalg.vector_norm(x.double()))


def _stop(session: Session) -> Stop:
    state = session.state
    method = session.context.algorithm(state)
    x = session.context.model(state).clone()
    offset = _offset(session, x) if isinstance(method, Relaxed) else None
    return Stop(state.round, x, state.buffers.clone(), 0.0, offset)


def _offset(session: Session, x: Vector) -> Vector:
    clients = session.context.population.clients
    total = session.state.x0.double() * (clients - len(session.store))
    for memory in session.store.values():
        total = total + memory.method.last.double()
    return x.double() - total / clients
