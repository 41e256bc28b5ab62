"""Jobs on worker processes, whatever happens to these.

The job of a worker that dies or hangs is run again by another one. Where new workers die too, with no job
done in between, the pool waits before it starts more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

from fedkeel.common.errors import TooFewClients
from fedkeel.engines.jobs.job import most_seconds
from fedkeel.engines.jobs.pickles import Known, Spans, exception_of
from fedkeel.engines.jobs.queue import JobQueue
from fedkeel.engines.outcome import past_deadline
from fedkeel.engines.pool.forkserver import PoolWorker
from fedkeel.engines.pool.sharing import SharedFile

HANG_SECONDS = 60.0  # a worker without a sign of life for so long hangs, and no job gets less time
_START_SECONDS = 60.0  # to read the settings of the run
_HANG_FACTOR = 10.0  # a job hangs that takes so many times longer than the slowest of its peers
_LOOK_SECONDS = 0.5  # between two looks at who hangs
BACK_OFF_SECONDS, _MOST_BACK_OFF = 0.5, 10.0  # before a start where new workers died too, doubled each time
SUSPECT_SECONDS = 3.0  # before the last try of a job whose workers died: whatever kills them may have ended
GIVE_UP = 10  # times that new workers died, with no job done in between


class WorkerPool:
    """The worker processes of a run; `known` are the classes whose definitions they have.

    A client that takes longer than `client_seconds` notices that itself between two steps; here those are
    ended that do not even come so far.
    """

    def __init__(
        self,
        count: int,
        files: tuple[SharedFile, SharedFile],
        start: tuple[Any, ...],
        known: Known,
        client_seconds: float | None = None,
    ) -> None:
        self._count, self._given, self._known = count, (*files, start), known
        self._client_seconds = client_seconds
        self._workers: list[PoolWorker] = []
        self._new: list[PoolWorker] = []  # of the last start
        self._early_deaths, self._last_death, self._version = 0, "", 0

    @property
    def pids(self) -> list[int | None]:
        """Return the process ids of the workers."""
        return [worker.pid for worker in self._workers]

    def run(self, queue: JobQueue, shared: Spans, take: Callable[[Any, Any], None]) -> None:
        """Run jobs, and let `take` have each with its result; `shared` is where lies what they share."""
        self._version += 1
        self._slowest = self._slowest_sample = 0.0
        self._last_look = time.monotonic()
        try:
            while not queue.finished:
                self._start_missing()
                self._hand_out(queue, shared)
                self._collect(queue, take)
                self._end_hanging(queue, take)
        except BaseException:  # an interrupt too: workers amid a job are of no more use
            self.close()
            raise

    def close(self) -> None:
        """End the workers."""
        while self._workers:
            self._workers.pop().end()

    def _start_missing(self) -> None:
        """Bring the workers to their number."""
        while missing := self._count - len(self._workers):
            if self._early_deaths == GIVE_UP:
                raise TooFewClients(
                    f"engine = 'processes': worker processes died {GIVE_UP} times in a row while starting "
                    f"or before a job was done ({self._last_death}): is there memory enough? "
                    "Try fewer workers, or engine='serial'"
                )
            time.sleep(min(_MOST_BACK_OFF, BACK_OFF_SECONDS * (2**self._early_deaths // 4)))
            try:
                for _ in range(missing):
                    self._workers.append(PoolWorker(*self._given))
            except (OSError, EOFError) as problem:
                self._early_deaths, self._last_death = self._early_deaths + 1, f"the fork server: {problem!r}"
                continue
            self._new = [worker for worker in self._workers if not worker.ready]
            for worker in self._new:
                try:
                    failure = worker.get_ready(_START_SECONDS)
                except (OSError, EOFError):
                    self._remove(worker)
                    continue
                if failure is not None:
                    raise exception_of(failure)

    def _hand_out(self, queue: JobQueue, shared: Spans) -> None:
        """Give jobs to the workers that have none."""
        for worker in [worker for worker in self._workers if not worker.jobs]:
            if queue.suspects_are_next:
                time.sleep(SUSPECT_SECONDS)
            jobs = queue.next()
            if not jobs:
                return
            try:
                worker.give(jobs, self._version, shared, self._known)
            except OSError:  # it died while it had nothing to do
                self._remove(worker)
                queue.again(jobs)

    def _collect(self, queue: JobQueue, take: Callable[[Any, Any], None]) -> None:
        """Wait for results, but not for long."""
        busy: dict[Any, PoolWorker] = {worker.pipe: worker for worker in self._workers if worker.jobs}
        for worker in [busy[pipe] for pipe in wait(busy, _LOOK_SECONDS)]:
            jobs, seconds = worker.jobs, time.monotonic() - worker.begun
            try:
                results = worker.take()
            except (EOFError, OSError):
                self._lost(queue, worker, self._remove(worker, over=jobs[0].name), take)
                continue
            self._early_deaths = 0
            self._slowest = max(self._slowest, seconds)
            self._slowest_sample = max(self._slowest_sample, seconds / worker.samples)
            worker.jobs = ()
            for job, result in zip(jobs, results, strict=True):
                if isinstance(result, bytes):
                    queue.failed(job, exception_of(result))
                else:
                    queue.done(job)
                    take(job, result)

    def _end_hanging(self, queue: JobQueue, take: Callable[[Any, Any], None]) -> None:
        """End workers that give no sign of life, or take far longer than their peers."""
        elapsed = time.monotonic() - self._last_look
        if elapsed < _LOOK_SECONDS:
            return
        self._last_look += elapsed
        for worker in [worker for worker in self._workers if worker.jobs]:
            worker.look(min(elapsed, 2 * _LOOK_SECONDS))  # this process may have been stopped itself
            slowest = max(self._slowest, self._slowest_sample * worker.samples)
            limit = max(HANG_SECONDS, _HANG_FACTOR * slowest) if slowest else math.inf
            overdue = worker.seconds > most_seconds(worker.jobs, self._client_seconds)
            if overdue or worker.silent > HANG_SECONDS or worker.seconds > limit:
                self._remove(worker, over=worker.jobs[0].name)
                how = (
                    past_deadline(self._client_seconds or 0.0)
                    if overdue
                    else f"it hung for {worker.seconds:.0f} s"
                )
                self._lost(queue, worker, how, take, overdue=overdue)

    def _lost(
        self,
        queue: JobQueue,
        worker: PoolWorker,
        how: str,
        take: Callable[[Any, Any], None],
        *,
        overdue: bool = False,
    ) -> None:
        """Give back the jobs of a worker that has ended; `take` has the failure of one that is given up."""
        for job, failure in queue.lost(worker.jobs, how, overdue=overdue):
            take(job, failure)

    def _remove(self, worker: PoolWorker, over: str = "its start") -> str:
        """End a worker that is of no more use; return how it ended."""
        self._workers.remove(worker)
        if worker in self._new:  # those that die together with it count no more
            self._early_deaths, self._new = self._early_deaths + 1, []
        how = worker.end()
        self._last_death = f"{how}, over {over}"
        return how
