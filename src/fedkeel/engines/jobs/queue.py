"""The jobs of a round or of an evaluation: which wait, which run, which failed, and whose workers died."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from fedkeel.common.errors import TooFewClients
from fedkeel.engines.contract import ClientFailure
from fedkeel.engines.jobs.job import ChunkJob, ClientJob, Job

PATIENCE = 3  # workers that one job may lose, whether they die or hang


class JobQueue:
    """Hands out jobs, so many at once that they have `together` samples; suspects alone, at the end.

    `skips_failed`: a client whose workers die again and again is given up, and the others go on.
    """

    def __init__(self, jobs: Sequence[Job], together: float = 0.0, *, skips_failed: bool = False) -> None:
        self._waiting, self._suspects = deque(jobs), deque[Job]()
        self._together, self._skips_failed = together, skips_failed
        self._running: set[Job] = set()
        self._apart = False  # whether jobs that went out together have lost a worker
        self._deaths: Counter[Job] = Counter()
        self._failures: dict[int, BaseException] = {}

    @property
    def finished(self) -> bool:
        """Tell whether nothing is left to run or to wait for."""
        return not (self._waiting or self._suspects or self._running)

    @property
    def suspects_are_next(self) -> bool:
        """Tell whether what is handed out next is the last try of a job whose workers died."""
        return bool(self._suspects) and not (self._waiting or self._running)

    def next(self) -> list[Job]:
        """Hand out jobs, none where there are none for now."""
        jobs = self._waiting or (deque[Job]() if self._running else self._suspects)
        if not jobs:
            return []
        taken = [jobs.popleft()]
        while self._waiting and not self._apart and sum(job.samples for job in taken) < self._together:
            taken.append(self._waiting.popleft())
        self._running.update(taken)
        return taken

    def done(self, job: Job) -> None:
        """Strike off a job."""
        self._running.remove(job)

    def failed(self, job: Job, error: BaseException) -> None:
        """Note a failure. What serial would do later need not be done: the first is raised."""
        self._running.remove(job)
        self._failures[job.order] = error
        first = min(self._failures)
        self._waiting = deque(job for job in self._waiting if job.order < first)
        self._suspects = deque(job for job in self._suspects if job.order < first)

    def lost(
        self, jobs: Sequence[Job], how: str, *, overdue: bool = False
    ) -> list[tuple[Job, ClientFailure]]:
        """Take back the jobs of a worker that died: several one by one, to find the one to blame.

        Return the client that is given up, if any, with its failure: at once where it is `overdue`.
        """
        self._running.difference_update(jobs)
        parts = [part for job in jobs for part in (job.clients if isinstance(job, ChunkJob) else [job])]
        if len(parts) > 1:
            self._apart = True
            self._waiting.extend(parts)
            return []
        [job] = jobs
        self._deaths[job] += 1
        left = 0 if overdue else PATIENCE - self._deaths[job]
        if left > 0:
            (self._suspects if left == 1 else self._waiting).append(job)
            return []
        if self._skips_failed and isinstance(job, ClientJob):
            reason = how if overdue else f"its worker processes died again and again ({how})"
            return [(job, ClientFailure(job.client, reason))]
        if overdue:
            raise TooFewClients(f"{job.name}: {how}")
        raise TooFewClients(
            f"{job.name}: {self._deaths[job]} worker processes died over it, the last when no other ran "
            f"({how}): is there memory enough? engine='serial' shows what happens in this process"
        )

    def again(self, jobs: Sequence[Job]) -> None:
        """Let jobs run once more that are not to blame: a whole machine was lost, or they had not begun."""
        self._running.difference_update(jobs)
        self._waiting.extend(jobs)

    def check(self) -> None:
        """Raise the failure that the serial engine would meet first."""
        if self._failures:
            raise self._failures[min(self._failures)]
