"""Local-update stability (FedSAGD, Figure 1): how far the clients of a cohort walk apart, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedkeel.common.errors import ConfigError
from fedkeel.engines.client import ClientRunner
from fedkeel.engines.contract import RoundRequest
from fedkeel.engines.serial import threads
from fedkeel.running.round import memories_of, prepare
from fedkeel.running.session import Session
from fedkeel.tensors.records import ClientMemory
from fedkeel.tensors.vector import Vector

_PATH_BYTES = 2**28  # of points that are held at once
_DECADES = 12


class LocalDistances(NamedTuple):
    """`distances[k]` = max ‖y_{i,k} − y_{j,k}‖ over pairs of the cohort of `round`, after k local steps."""

    round: int
    distances: list[float]


def measured_rounds(rounds: int, asked: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return in which rounds walks are measured: by default 0, 10, 50, 100, 500, … and the last one."""
    if asked is None:
        marks = [0, *(mark * 10**power for power in range(1, _DECADES) for mark in (1, 5))]
        return (*(mark for mark in marks if mark < rounds - 1), rounds - 1)
    for round in asked:
        if not 0 <= round < rounds:
            raise ConfigError(
                f"stability: local_rounds holds {round}: the run has rounds 0 to {rounds - 1}: give those"
            )
    return tuple(sorted(set(asked)))


def local_distances(session: Session) -> LocalDistances:
    """Return the largest distances between two clients' walks in the round that the session plays next.

    The walks start from the run's present state: the server's record, the clients' memories, the offsets
    that the method makes of them. The run itself is not changed. A walk that ended stays at its end.
    """
    session.change_stage()
    context, state = session.context, session.state
    request = prepare(context, state)
    memories = memories_of(context, state, session.store, request)
    runner = ClientRunner(context.settings, context.oracle)
    steps = max(len(runner.minibatches(state.round, client)) for client in request.clients)
    point_bytes = len(request.clients) * state.x0.nbytes
    block = max(1, _PATH_BYTES // point_bytes)
    distances: list[float] = []
    with threads(context.engine.threads):
        for first in range(0, steps + 1, block):
            wanted = range(first, min(first + block, steps + 1))
            walks = [
                _points(runner, request, client, memory, wanted)
                for client, memory in zip(request.clients, memories, strict=True)
            ]
            distances += [_largest(torch.stack(points)) for points in zip(*walks, strict=True)]
    return LocalDistances(state.round, distances)


def _points(
    runner: ClientRunner, request: RoundRequest, client: int, memory: ClientMemory, wanted: range
) -> list[Vector]:
    """Return the points y_k of a client's walk for the steps k that are asked for."""
    points: list[Vector] = []
    step = 0

    def trace(y: Vector) -> None:
        nonlocal step
        if step in wanted:
            points.append(y.clone())
        step += 1

    plan = request.algorithm.plan(request.down, memory.method, runner.facts(request, client))
    end = runner.walk(request, client, plan, trace=trace).walk.end.clone()
    return points + [end] * (len(wanted) - len(points))


def _largest(points: Tensor) -> float:
    """Return the largest distance between two rows; products of rows would lose close ones to rounding."""
    wide = points.double()
    return float(torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist").max())
