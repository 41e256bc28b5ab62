"""What the round loop and the engines say to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch

from fedkeel.algorithm import Algorithm
from fedkeel.data.federation import Batch, Federation
from fedkeel.probes.base import Passes
from fedkeel.probes.watch import Watch
from fedkeel.records import Record
from fedkeel.reducers import Reducer
from fedkeel.task import Task
from fedkeel.vector import Vector
from fedkeel.work import Work


class Setting(NamedTuple):
    """What stays the same for all clients and rounds of a run."""

    task: Task
    federation: Federation
    work: Work
    seed: int
    device: torch.device


class Prospect(NamedTuple):
    """How much there is to do: rounds, and clients a round."""

    rounds: int
    cohort: int


class Choice(NamedTuple):
    """An engine on a number of threads, and why it was chosen.

    `figures` holds microseconds a step of one client for each engine, or the reason why there are none.
    """

    engine: str
    threads: int | None = None
    reason: str = "as asked"
    figures: Mapping[str, float | str] = MappingProxyType({})

    def describe(self) -> dict[str, Any]:
        """Return what a manifest says of the choice."""
        return {"reason": self.reason, "microseconds_a_step": dict(self.figures)}


class Unsuited(Exception):
    """An engine cannot run this task; the message says why."""


class Order(NamedTuple):
    """What the server sends out in a round, and to whom; with `watch`, what probes ask of the clients.

    Where there is a watch, a client's memory comes and goes as `Kept`, beside the notes of the probes.
    """

    algorithm: Algorithm
    round: int
    lr: float
    down: Record
    buffers: Vector
    clients: Sequence[int]
    weights: Sequence[float]
    watch: Watch | None = None


class Upload(NamedTuple):
    """What is averaged over the cohort: the method's upload, the model's float buffers, probes' measures."""

    up: Record
    buffers: Vector
    measures: Record = None


class Answer(NamedTuple):
    """What a client's round gives."""

    upload: Upload | None
    memory: Record
    loss: float
    gradients: int
    bytes_up: int
    passes: Passes | None = None

    def without_upload(self) -> Answer:
        """Return the rest, once the upload is folded."""
        return self._replace(upload=None)


class Harvest(NamedTuple):
    """A cohort's answers: the reduced upload, and by drawn position memories and losses; counts in all."""

    upload: Upload
    memories: list[Record]
    losses: list[float]
    gradients: int
    bytes_up: int
    passes: Passes | None = None

    @classmethod
    def of(cls, upload: Upload, answers: Sequence[Answer]) -> Harvest:
        """Gather the answers of a cohort in drawn order."""
        passes = [answer.passes for answer in answers if answer.passes is not None]
        counted = len(passes) == len(answers)
        return cls(
            upload,
            [answer.memory for answer in answers],
            [answer.loss for answer in answers],
            sum(answer.gradients for answer in answers),
            sum(answer.bytes_up for answer in answers),
            Passes(*map(sum, zip(*passes, strict=True))) if counted else None,
        )


class Engine(Protocol):
    """Runs a cohort's walks, and judges models. All engines give the serial engine's result."""

    name: str
    threads: int

    def run(self, order: Order, memories: Sequence[Record], reducer: Reducer) -> Harvest:
        """Let every client of the cohort do its round, and reduce what they send."""

    def judge(self, vectors: Sequence[Vector], buffers: Vector, data: Batch) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples."""

    def close(self) -> None:
        """Give back processes and memory."""
