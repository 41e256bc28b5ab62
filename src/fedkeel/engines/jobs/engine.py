"""What engines that hand out jobs have in common, whoever runs the jobs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from fedkeel.common.errors import ConfigError
from fedkeel.core.evaluation import Sums, mean
from fedkeel.core.oracle import EVALUATION_BATCH, Oracle
from fedkeel.data.samples import Samples
from fedkeel.engines.contract import CohortResult, RoundRequest
from fedkeel.engines.jobs.job import CohortSums, Job, Models, SampleSet, Shared, evaluation_jobs, round_jobs
from fedkeel.engines.jobs.pickles import UNPICKLABLE, dumps
from fedkeel.engines.serial import threads
from fedkeel.engines.sizing import fits_channels_last
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import ClientMemory
from fedkeel.tensors.vector import Vector

WORTH_SENDING = 0.003  # seconds: a batch that is evaluated faster is not worth sending out


class JobEngine(ABC):
    """Cuts rounds and evaluations into jobs; `workers` is how many may run at once.

    Clients that take less than `together` seconds go out several at once.
    """

    name: str
    threads: int = 1
    workers: int
    together: float

    def __init__(self, settings: RunSettings, oracle: Oracle) -> None:
        self.settings, self.oracle = settings, oracle
        oracle.channels_last = fits_channels_last(settings, oracle)
        if settings.evaluated_on == "clients":
            _ = settings.federation.everything  # models are evaluated there: workers shall have it
        self._batch_seconds: float | None = None
        self._samples_per_second = 0.0  # of a worker

    @abstractmethod
    def execute(
        self, shared: Shared, jobs: Sequence[Job], take: Callable[[Any, Any], None], together: float = 0.0
    ) -> None:
        """Let workers run jobs, or raise the failure that serial would meet first."""

    def lost_workers(self) -> Sequence[str]:
        """Return what was lost since the last call, each in a line."""
        return ()

    @abstractmethod
    def close(self) -> None:
        """Give back processes and memory."""

    def run(self, request: RoundRequest, memories: Sequence[ClientMemory]) -> CohortResult:
        """Let every client of the cohort do its round, and reduce what they send."""
        sums = CohortSums(self.settings.reducer, request)
        jobs = round_jobs(self.settings, request, memories, self.workers)
        started = time.perf_counter()
        self.execute(request, jobs, sums.take, together=self.together * self._samples_per_second)
        seconds = time.perf_counter() - started
        self._samples_per_second = sum(job.samples for job in jobs) / self.workers / seconds
        return sums.result()._replace(lost_workers=self.lost_workers())

    def evaluate(self, vectors: Sequence[Vector], buffers: Vector, data: Samples) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples; workers share them where that is faster.

        What needs all outputs, or takes batch after batch, is computed here.
        """
        name = self._name_of(data) if self.settings.task.is_mean_over_samples else None
        with threads(self.threads):
            if name is None or not self._worth_sharing(vectors[0], buffers, data):
                prepare = self.settings.federation.prepare
                return [self.oracle.evaluate(vector, buffers, data, prepare) for vector in vectors]
        sums: dict[Job, list[Sums]] = {}
        jobs = evaluation_jobs(name, data.size, len(vectors))
        self.execute(Models(vectors, buffers), jobs, sums.__setitem__)
        batches = [[sums[job][0] for job in jobs if job.model == model] for model in range(len(vectors))]
        return [mean(found) for found in batches]

    def _name_of(self, data: Samples) -> SampleSet | None:
        """Return what workers know samples as; None where they do not have them."""
        federation = self.settings.federation
        if data is federation.test:
            return "test"
        if data is vars(federation).get("validation_samples"):
            return "validation_samples"
        known = self.settings.evaluated_on == "clients" or data is federation.pool  # was sent, or is no copy
        return "everything" if known and data is vars(federation).get("everything") else None

    def _worth_sharing(self, vector: Vector, buffers: Vector, data: Samples) -> bool:
        """Tell whether there are several batches that take some time each; no bit depends on the answer."""
        if self.workers < 2 or data.size <= EVALUATION_BATCH:
            return False
        if self._batch_seconds is None:
            batch = data.part(0, EVALUATION_BATCH)
            started = time.perf_counter()
            self.oracle.batch_sums(vector, buffers, batch, self.settings.federation.prepare)
            self._batch_seconds = time.perf_counter() - started
        return self._batch_seconds > WORTH_SENDING

    def unsendable(self, problem: Exception) -> ConfigError:
        """Return the error that names the part of a run that cannot be sent to workers."""
        return ConfigError(
            f"engine = {self.name!r}: {_unsendable(self.settings)} cannot be sent to worker processes "
            f"({problem}): leave out what belongs to this process alone, as files and locks do, "
            "or use engine='serial'"
        )


def _unsendable(settings: RunSettings) -> str:
    """Name the part of a run that cannot be pickled."""
    for owner in (settings.task, settings.federation, settings):
        for name, part in vars(owner).items():
            try:
                dumps(part, {})
            except UNPICKLABLE:
                return f"{type(owner).__name__}.{name}"
    return "the method's state"
