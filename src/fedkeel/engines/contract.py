"""What the round loop and the engines say to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from fedkeel.common.errors import Diverged
from fedkeel.core.algorithm import Algorithm
from fedkeel.core.oracle import Passes
from fedkeel.data.samples import Samples
from fedkeel.probes.client import ClientProbes
from fedkeel.tensors.records import ClientMemory, Record
from fedkeel.tensors.vector import Vector

UploadShapes = Mapping[str, tuple[int, ...]]  # of a method's upload, by the names of its tensors


class RoundRequest(NamedTuple):
    """What the server sends out in a round, and to whom; `probes` is what is measured at the clients.

    `shapes` are those that uploads must have; None where they are not checked.
    `stage` is the number of the method in a schedule of stages. `lr` is the rate of the round's first step;
    `rate_factor`, part of it, is what a rollback puts on every rate of the round. `mean_samples` is the mean
    number of samples of all clients; None where the federation tells it, as it does everywhere but on a
    deployment's node.
    """

    algorithm: Algorithm
    round: int
    lr: float
    down: Record
    buffers: Vector
    clients: Sequence[int]
    weights: Sequence[float]
    probes: ClientProbes | None = None
    shapes: UploadShapes | None = None
    stage: int = 0
    mean_samples: float | None = None
    rate_factor: float = 1.0


class Upload(NamedTuple):
    """What is reduced over the cohort: the method's upload and the model's float buffers."""

    up: Record
    buffers: Vector


class ClientResult(NamedTuple):
    """What a client's round gives; `upload` is None once it is reduced, `measures` are the probes'."""

    upload: Upload | None
    memory: ClientMemory
    loss: float
    gradients: int
    bytes_up: int
    passes: Passes | None = None
    measures: Record = None


class ClientFailure(NamedTuple):
    """What stands in place of a client's result where it failed and the run goes on without it.

    `reason` is the same in every engine that meets the same failure; `diverged`: its walk left the numbers.
    """

    client: int
    reason: str
    diverged: Diverged | None = None


ClientOutcome = ClientResult | ClientFailure


class CohortResult(NamedTuple):
    """What a cohort's round gives: the reduced upload, the mean measures, the clients' results in order.

    Clients that failed are in `skipped` alone; `upload` is None where all of them are. `lost_workers` tells
    of workers and machines that were lost meanwhile, which changed nothing. `remarks` are what else the
    round's row shall say.
    """

    upload: Upload | None
    measures: Record
    clients: Sequence[ClientResult]
    skipped: Sequence[ClientFailure] = ()
    lost_workers: Sequence[str] = ()
    remarks: Mapping[str, Any] = MappingProxyType({})

    @property
    def train_loss(self) -> float:
        """Return the mean of the clients' training losses."""
        return sum(client.loss for client in self.clients) / len(self.clients)

    @property
    def gradients(self) -> int:
        """Return the gradients that all clients took."""
        return sum(client.gradients for client in self.clients)

    @property
    def bytes_up(self) -> int:
        """Return the bytes that all clients sent."""
        return sum(client.bytes_up for client in self.clients)

    @property
    def passes(self) -> Passes | None:
        """Return the passes of all clients, None where they were not counted."""
        counted = [client.passes for client in self.clients if client.passes is not None]
        return Passes(*map(sum, zip(*counted, strict=True))) if len(counted) == len(self.clients) else None


class Choice(NamedTuple):
    """An engine on a number of threads, and why it was chosen.

    `figures` holds microseconds per step of one client for each engine, or the reason why there are none.
    """

    engine: str
    threads: int | None = None
    reason: str = "as asked"
    figures: Mapping[str, float | str] = MappingProxyType({})

    def __str__(self) -> str:
        """Return it in a line."""
        threads = "" if self.threads is None else f" on {self.threads} thread{'s' * (self.threads > 1)}"
        return f"{self.engine}{threads} ({self.reason})"

    def describe(self) -> dict[str, Any]:
        """Return what a manifest says of the choice."""
        return {"reason": self.reason, "microseconds_per_step": dict(self.figures)}


class Unsuited(Exception):
    """An engine cannot run this task; the message says why."""


class MemoriesLost(Exception):
    """Clients no longer have the memories that count, and the method shall start afresh with all clients."""

    def __init__(self, clients: Sequence[int]) -> None:
        super().__init__(f"clients {', '.join(map(str, clients))}")
        self.clients = list(clients)


class Engine(Protocol):
    """Runs a cohort's walks, and evaluates models. All engines give the serial engine's result.

    A client's round is run by `ClientRunner.outcome`: a failure is a value there, and `Reduction`
    leaves its slot empty. A client that an engine itself gives up (its workers die) is such a value too.
    """

    name: str
    threads: int

    def run(self, request: RoundRequest, memories: Sequence[ClientMemory]) -> CohortResult:
        """Let every client of the cohort do its round, and reduce what they send."""

    def evaluate(self, vectors: Sequence[Vector], buffers: Vector, data: Samples) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples."""

    def close(self) -> None:
        """Give back processes and memory."""
