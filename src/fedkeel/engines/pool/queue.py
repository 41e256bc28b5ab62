"""The jobs of a round or of an evaluation: which wait, which run, which failed, and whose workers died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedkeel.engines.pool.jobs import ChunkJob, Job
from fedkeel.errors import TooFewClients

PATIENCE = 3  # workers that one job may lose


class JobQueue:
    """Hands out jobs; one that has lost two workers is run alone in the end."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._waiting, self._suspects = list(jobs), list[Job]()
        self._running: set[Job] = set()
        self._deaths: Counter[Job] = Counter()
        self._failures: dict[int, BaseException] = {}

    @property
    def finished(self) -> bool:
        """Tell whether nothing is left to run or to wait for."""
        return not (self._waiting or self._suspects or self._running)

    def next(self) -> Job | None:
        """Hand out a job, None where there is none for now."""
        jobs = self._waiting or ([] if self._running else self._suspects)
        if not jobs:
            return None
        self._running.add(jobs[0])
        return jobs.pop(0)

    def done(self, job: Job) -> None:
        """Strike off a job."""
        self._running.remove(job)

    def failed(self, job: Job, error: BaseException) -> None:
        """Note a failure. What serial would do later need not be done: the first is raised."""
        self._running.remove(job)
        self._failures[job.order] = error
        first = min(self._failures)
        self._waiting = [job for job in self._waiting if job.order < first]
        self._suspects = [job for job in self._suspects if job.order < first]

    def lost(self, job: Job, how: str) -> None:
        """Take back a job whose worker died; a chunk client by client, to find the one to blame."""
        self._running.remove(job)
        self._deaths[job] += 1
        if self._deaths[job] == PATIENCE:
            raise TooFewClients(
                f"{job.name}: {PATIENCE} worker processes died over it, the last when no other ran ({how}): "
                "is there memory enough? engine='serial' shows what happens in this process"
            )
        jobs = self._suspects if self._deaths[job] == PATIENCE - 1 else self._waiting
        jobs += job.clients if isinstance(job, ChunkJob) else [job]

    def check(self) -> None:
        """Raise the failure that the serial engine would meet first."""
        if self._failures:
            raise self._failures[min(self._failures)]
