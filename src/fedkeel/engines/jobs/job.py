"""What a job is: a client's round, those of a chunk, or a model on a batch. Who runs it is told elsewhere.

A job is a value and `run_job` a pure function, so where a job runs, and how often, changes no bit. Uploads
are summed in chunks of eight by drawn position: while there is plenty to do a job is a whole chunk; towards
the end of a round it is a single client, the longest first, whose chunk is summed where results meet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from fedkeel.core.oracle import EVALUATION_BATCH, Oracle
from fedkeel.engines.client import ClientRunner
from fedkeel.engines.contract import ClientOutcome, CohortResult, RoundRequest
from fedkeel.engines.reduction import ChunkSum, chunks, merge_chunks
from fedkeel.reducers import CHUNK, Reducer
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import ClientMemory
from fedkeel.tensors.vector import Vector

OVERTIME, OVERTIME_SECONDS = 2.0, 5.0  # times a client's deadline, and so much more

SampleSet = Literal["test", "everything", "validation_samples"]  # of a federation


@dataclass(frozen=True, eq=False)
class ClientJob:
    """The round of the client at position `order` of the cohort."""

    order: int
    name: str
    samples: int
    client: int
    memory: ClientMemory


@dataclass(frozen=True, eq=False)
class ChunkJob:
    """The rounds of a chunk's clients, summed up by who runs them."""

    order: int
    name: str
    samples: int
    clients: Sequence[ClientJob]


@dataclass(frozen=True, eq=False)
class EvaluationJob:
    """One of the models on a slice of the samples that every worker holds."""

    order: int
    name: str
    samples: int
    model: int
    data: SampleSet
    start: int


Job = ClientJob | ChunkJob | EvaluationJob  # `order` is that in which serial does them


def most_seconds(jobs: Sequence[Job], client_seconds: float | None) -> float:
    """Return how long jobs may take before their worker is ended, where clients have a deadline.

    A client that takes too long notices that itself between two steps, if it comes so far.
    """
    if client_seconds is None or isinstance(jobs[0], EvaluationJob):
        return math.inf
    clients = sum(len(job.clients) if isinstance(job, ChunkJob) else 1 for job in jobs)
    return OVERTIME * client_seconds * clients + OVERTIME_SECONDS


class Models(NamedTuple):
    """The models that are evaluated together."""

    vectors: Sequence[Vector]
    buffers: Vector


Shared = RoundRequest | Models  # what jobs have in common


def make_runner(
    settings: RunSettings, channels_last: bool, device: torch.device | None = None
) -> ClientRunner:
    """Return what a worker keeps for a run."""
    oracle = Oracle(settings.task, device or torch.device("cpu"))
    oracle.channels_last = channels_last
    return ClientRunner(settings, oracle)


def run_job(runner: ClientRunner, shared: Any, job: Job) -> Any:
    """Return a client's outcome, a chunk's sum, or a batch's sums; `shared` is what jobs have in common."""
    settings, federation = runner.settings, runner.settings.federation
    if isinstance(job, ClientJob):
        return runner.outcome(shared, job.client, job.memory)
    if isinstance(job, ChunkJob):
        total = ChunkSum()
        for one in job.clients:
            total.add(settings.reducer, shared.weights[one.order], run_job(runner, shared, one))
        return total
    batch = getattr(federation, job.data).part(job.start, job.start + job.samples)
    return runner.oracle.batch_sums(shared.vectors[job.model], shared.buffers, batch, federation.prepare)


def round_jobs(
    settings: RunSettings, request: RoundRequest, memories: Sequence[ClientMemory], workers: int
) -> list[Job]:
    """Cut a round into whole chunks, and single clients for the last chunk of each worker."""
    offsets, drawn = settings.federation.offsets, torch.as_tensor(request.clients)
    sizes = (offsets[drawn + 1] - offsets[drawn]).tolist()
    singles = [
        ClientJob(order, f"round {request.round}, client {client}", size, client, memory)
        for order, (client, size, memory) in enumerate(zip(request.clients, sizes, memories, strict=True))
    ]
    whole = chunks(len(singles))[:-workers]
    parts = [singles[part.start : part.stop] for part in whole]
    rest = singles[len(whole) * CHUNK :]
    return [
        *(ChunkJob(part[0].order, "a chunk", sum(one.samples for one in part), part) for part in parts),
        *sorted(rest, key=lambda one: -one.samples),
    ]


def evaluation_jobs(data: SampleSet, samples: int, models: int) -> list[EvaluationJob]:
    """Cut an evaluation into the batches that one process would take."""
    names = {"test": "the test set", "everything": "the clients' data"}
    name = names.get(data, "the validation data")
    starts, jobs = range(0, samples, EVALUATION_BATCH), list[EvaluationJob]()
    for model in range(models):
        for start in starts:
            size = min(EVALUATION_BATCH, samples - start)
            told = f"evaluation, samples {start} to {start + size - 1} of {name}"
            jobs.append(EvaluationJob(len(jobs), told, size, model, data, start))
    return jobs


class CohortSums:
    """The results of a round's jobs, summed up chunk by chunk as they come in."""

    def __init__(self, reducer: Reducer, request: RoundRequest) -> None:
        self._reducer, self._weights = reducer, request.weights
        self._chunks = chunks(len(request.clients))
        self._sums: dict[int, ChunkSum] = {}
        self._singles: dict[int, ClientOutcome] = {}

    def take(self, job: Job, result: Any) -> None:
        """Take a job's result; sum up its chunk where that is complete."""
        chunk = job.order // CHUNK
        if isinstance(job, ChunkJob):
            self._sums[chunk] = result
            return
        self._singles[job.order] = result
        if all(position in self._singles for position in self._chunks[chunk]):
            total = self._sums[chunk] = ChunkSum()
            for position in self._chunks[chunk]:
                total.add(self._reducer, self._weights[position], self._singles.pop(position))

    def result(self) -> CohortResult:
        """Return the cohort's result once all jobs are done."""
        return merge_chunks(self._reducer, [self._sums[chunk] for chunk in sorted(self._sums)])
