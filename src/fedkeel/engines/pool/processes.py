"""The processes engine: jobs on worker processes of this machine, one thread each.

The data lies in shared memory once per run; a round's request is written there once per round, and so are
models that are evaluated. The result is the serial engine's to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from multiprocessing import current_process
from typing import Any

from fedkeel.data.samples import Samples
from fedkeel.engines.contract import CohortResult, RoundRequest, Unsuited
from fedkeel.engines.pool.forkserver import start_fork_server
from fedkeel.engines.pool.jobs import CohortSums, Job, Models, SampleSet, Shared, evaluation_jobs, round_jobs
from fedkeel.engines.pool.pool import WorkerPool
from fedkeel.engines.pool.queue import JobQueue
from fedkeel.engines.pool.sharing import UNPICKLABLE, Known, SharedFile, Spans, dumps
from fedkeel.engines.pool.worker import torch_switches
from fedkeel.engines.serial import threads
from fedkeel.engines.sizing import available_cores, fits_channels_last
from fedkeel.errors import ConfigError
from fedkeel.evaluation import mean
from fedkeel.oracle import EVALUATION_BATCH, Oracle
from fedkeel.records import ClientMemory
from fedkeel.settings import RunSettings
from fedkeel.vector import Vector

WORTH_SENDING = 0.003  # seconds: a batch that is evaluated faster is not worth sending out
_TOGETHER = 0.003  # seconds: clients that take less go out several at once


class Processes:
    """Runs the clients of a cohort on worker processes."""

    name = "processes"
    threads = 1

    def __init__(self, settings: RunSettings, oracle: Oracle, workers: int | None = None) -> None:
        if oracle.device.type != "cpu":
            raise ConfigError(
                f"engine = 'processes' computes on the CPU, not on {oracle.device}: "
                "choose engine='serial' or 'stacked' there"
            )
        if current_process().daemon:
            raise Unsuited("a daemonic process, as in multiprocessing.Pool, may not start worker processes")
        start_fork_server()
        oracle.channels_last = fits_channels_last(settings, oracle)
        self.settings, self.oracle, self.workers = settings, oracle, workers or available_cores()
        self._files = SharedFile(), SharedFile()  # of the settings, and of what the jobs of a round share
        self._known: Known = {}
        if settings.evaluated_on == "clients":
            _ = settings.federation.everything  # models are evaluated there: workers shall have it
        spans = self._write(self._files[0], settings, define=True)
        start = spans, oracle.channels_last, torch_switches()
        self.pool = WorkerPool(self.workers, self._files, start, self._known)
        self._batch_seconds: float | None = None
        self._samples_per_second = 0.0  # of a worker

    def run(self, request: RoundRequest, memories: Sequence[ClientMemory]) -> CohortResult:
        """Let every client of the cohort do its round, and reduce what they send."""
        sums = CohortSums(self.settings.reducer, request)
        jobs = round_jobs(self.settings, request, memories, self.workers)
        started = time.perf_counter()
        self._execute(request, jobs, sums.take, together=_TOGETHER * self._samples_per_second)
        seconds = time.perf_counter() - started
        self._samples_per_second = sum(job.samples for job in jobs) / self.workers / seconds
        return sums.result()

    def evaluate(self, vectors: Sequence[Vector], buffers: Vector, data: Samples) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples; workers share them where that is faster.

        What needs all outputs, or takes batch after batch, is computed here.
        """
        name = self._name_of(data) if self.settings.task.is_mean_over_samples else None
        with threads(self.threads):
            if name is None or not self._worth_sharing(vectors[0], buffers, data):
                prepare = self.settings.federation.prepare
                return [self.oracle.evaluate(vector, buffers, data, prepare) for vector in vectors]
        sums: dict[Job, list[dict[str, float]]] = {}
        jobs = evaluation_jobs(name, data.size, len(vectors))
        self._execute(Models(vectors, buffers), jobs, sums.__setitem__)
        batches = [[sums[job][0] for job in jobs if job.model == model] for model in range(len(vectors))]
        return [mean(found, data.size) for found in batches]

    def close(self) -> None:
        """End the workers and give back the shared memory."""
        self.pool.close()
        for file in self._files:
            file.close()

    def _execute(
        self, shared: Shared, jobs: Sequence[Job], take: Callable[[Any, Any], None], together: float = 0.0
    ) -> None:
        """Let workers run jobs, or raise the failure that serial would meet first."""
        queue = JobQueue(jobs, together, leaves_out=self.settings.leaves_out)
        spans = self._write(self._files[1], shared)
        with threads(self.threads):
            self.pool.run(queue, spans, take)
        queue.check()

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

    def _write(self, file: SharedFile, value: Any, *, define: bool = False) -> Spans:
        try:
            return file.write(value, self._known, define=define)
        except UNPICKLABLE as problem:
            raise ConfigError(
                f"engine = 'processes': {_unsendable(self.settings)} cannot be sent to worker processes "
                f"({problem}): leave out what belongs to this process alone, as files and locks do, "
                "or use engine='serial'"
            ) from None


def _unsendable(settings: RunSettings) -> str:
    """Name the part of a run that cannot be pickled."""
    for owner in (settings.task, settings.federation, settings):
        for name, part in vars(owner).items():
            try:
                dumps(part, {})
            except UNPICKLABLE:
                return f"{type(owner).__name__}.{name}"
    return "the method's state"
