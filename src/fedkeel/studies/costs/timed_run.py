"""A run whose rounds are played one by one and timed, and what is counted at the end of each stage."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedkeel.core.algorithm import Facts, Plan
from fedkeel.core.walk import sharp_of
from fedkeel.methods import Stages
from fedkeel.probes import Divergence
from fedkeel.probes.divergence import LastModel
from fedkeel.running.round import Row
from fedkeel.running.session import Session, open_session
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import Record, leaves

_ONE_THREAD = Execution(engine="serial", threads=1)


class StageCount(NamedTuple):
    """What was counted of a stage: its last row, vectors in memory, each round's processor seconds.

    `kept`: vectors a client keeps between rounds; `beside`: those of them that are not its own last model;
    `working`: vectors it holds during its walk.
    """

    row: Row
    model_bytes: int
    kept: float
    beside: float
    working: float
    seconds: list[float]

    def slowdown(self, base: StageCount) -> float:
        """Return how much longer a round takes; a stage's first round is left out, it warms up."""
        pairs = list(zip(self.seconds, base.seconds, strict=True))
        return statistics.median(ours / plain for ours, plain in pairs[1:] or pairs)


class TimedRun:
    """A run with stages of equal length, played round by round on one thread.

    Its clients note their end models, to tell them from what else they keep.
    """

    def __init__(self, settings: RunSettings, stages: Stages, stage_rounds: int, rounds: int) -> None:
        ends = [stage_rounds * (1 + number) for number in range(len(stages.parts) - 1)]
        parts = [part._replace(until=end) for part, end in zip(stages.parts, [*ends, None], strict=True)]
        changed = settings.changed(
            method=stages._replace(parts=tuple(parts)),
            rounds=rounds,
            eval_every=rounds,
            probes=(Divergence(),),
        )
        self.session = open_session(changed, _ONE_THREAD)
        self.counts: list[StageCount] = []
        self._rounds = self.session.rounds()
        self._stage_rounds = stage_rounds
        self._seconds: list[float] = []

    def play(self, round: int) -> None:
        """Play a round, where the run has one left; count at the end of a stage."""
        if round >= self.session.context.settings.rounds:
            return
        started = time.process_time()
        row = next(self._rounds)
        self._seconds.append(time.process_time() - started - sum(self.session.seconds.values()))
        if (round + 1) % self._stage_rounds == 0:
            self.counts.append(_counted(self.session, row, self._seconds))
            self._seconds = []

    def close(self) -> None:
        """Give back what the engine holds."""
        self.session.close()


def _counted(session: Session, row: Row, seconds: list[float]) -> StageCount:
    kept, beside = _memory(session)
    model_bytes = session.state.x0.nbytes
    return StageCount(row, model_bytes, kept, beside, _working(session, beside), seconds)


def _memory(session: Session) -> tuple[float, float]:
    """Return how many vectors a client keeps, and how many of them are not its own last model."""
    d = session.context.oracle.layout.total
    most = 0.0, 0.0
    for memory in session.store.values():
        (note,) = (note for note in memory.notes if isinstance(note, LastModel))
        sizes = [(tensor.numel() / d, torch.equal(tensor, note.last)) for _, tensor in leaves(memory.method)]
        kept = sum(size for size, _ in sizes)
        beside = sum(size for size, is_model in sizes if not is_model)
        most = max(most, (kept, beside))
    return most


def _working(session: Session, beside: float) -> float:
    """Return how many vectors a client holds while it walks.

    Its point; of what it received all but the model, and that too where the walk refers to it; what it keeps
    beside its model; the shifted point of a sharp step.
    """
    method = session.context.algorithm(session.state)
    down = method.broadcast(session.state.server)
    plan = method.plan(down, method.init_client(session.state.x0), Facts.of(1, 1.0, down.x))
    d = session.context.oracle.layout.total
    received = sum(tensor.numel() / d for _, tensor in leaves(down)) - 1
    pulls = isinstance(plan.pull, Tensor) or plan.pull != 0
    refers = pulls or any(vector is down.x for vector in _referred(plan))
    return 1 + received + refers + beside + (sharp_of(plan.sharp) is not None)


def _referred(plan: Plan) -> Iterator[Any]:
    context: Record = None if plan.objective is None else plan.objective.context
    yield from (tensor for _, tensor in leaves(context))
