"""Jobs on worker processes, whatever happens to these.

The job of a worker that dies or hangs is run again by another one. Where new workers die too, with no job
done in between, the pool waits before it starts more.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from fedkeel.engines.pool.forkserver import PoolWorker
from fedkeel.engines.pool.jobs import Job
from fedkeel.engines.pool.queue import JobQueue
from fedkeel.engines.pool.sharing import Known, SharedFile, Spans
from fedkeel.engines.pool.worker import work
from fedkeel.errors import TooFewClients

HANG_SECONDS = 60.0  # a worker without a sign of life for so long hangs, and no job gets less time
BACK_OFF_SECONDS = 0.5  # before workers are started where new ones died too, doubled each time
_HANG_FACTOR = 10.0  # a job hangs that takes so many times longer than the slowest so far
_LOOK_SECONDS = 0.5
_MOST_BACK_OFF = 10.0
GIVE_UP = 10  # starts in a row of workers that died, with no job done in between


class _Running:
    """A job that a worker runs: since when, and how long without a sign of life."""

    def __init__(self, worker: PoolWorker, job: Job) -> None:
        self.worker, self.job = worker, job
        self.begun = time.monotonic()
        self.seconds = self.silent = self._sign = 0.0

    def look(self, seconds: float) -> None:
        """Note that so many seconds have passed, with or without a sign of life."""
        before, self._sign = self._sign, self.worker.sign
        self.seconds += seconds
        self.silent = self.silent + seconds if self._sign == before else 0.0


class WorkerPool:
    """The worker processes of a run."""

    def __init__(self, count: int, files: tuple[SharedFile, SharedFile], start: tuple[Any, ...]) -> None:
        self._count, self._files, self._start = count, files, start
        self._idle: list[PoolWorker] = []
        self._new: list[PoolWorker] = []  # of the last start
        self._running: dict[Future[Any], _Running] = {}
        self._version = self._early_deaths = 0
        self._ended = ""
        self._slowest = self._slowest_sample = self._last_look = 0.0

    @property
    def pids(self) -> list[int | None]:
        """Return the process ids of the workers that wait for jobs."""
        return [worker.pid for worker in self._idle]

    def run(self, queue: JobQueue, shared: Spans, known: Known, take: Callable[[Any, Any], None]) -> None:
        """Run jobs, and let `take` have each with its result; `shared` is where lies what they share."""
        self._version += 1
        try:
            while not queue.finished:
                self._start_missing()
                while self._idle and (job := queue.next()) is not None:
                    self._give(job, shared, known, queue)
                self._collect(queue, take)
                self._end_hanging(queue)
        except BaseException:  # an interrupt too: workers amid a job are of no more use
            self.close()
            raise

    def close(self) -> None:
        """End the workers."""
        for worker in (*self._idle, *(running.worker for running in self._running.values())):
            worker.end()
        self._idle, self._running = [], {}

    def _start_missing(self) -> None:
        """Bring the workers to their number."""
        while missing := self._count - len(self._idle) - len(self._running):
            if self._early_deaths == GIVE_UP:
                raise TooFewClients(
                    f"engine = 'processes': worker processes died {GIVE_UP} times in a row while starting "
                    f"or before a job was done ({self._ended}): is there memory enough? Try fewer workers, "
                    "or engine='serial'"
                )
            time.sleep(min(_MOST_BACK_OFF, BACK_OFF_SECONDS * (2**self._early_deaths // 4)))
            try:
                self._new = [PoolWorker(*self._files, self._start) for _ in range(missing)]
            except (OSError, EOFError) as problem:
                self._early_deaths, self._ended = self._early_deaths + 1, f"the fork server: {problem!r}"
                continue
            self._idle += self._new
            for worker in tuple(self._new):
                try:
                    failure = worker.started.result(HANG_SECONDS)
                except (BrokenProcessPool, TimeoutError):
                    self._end(worker)
                    continue
                if failure is not None:
                    raise pickle.loads(failure)

    def _give(self, job: Job, shared: Spans, known: Known, queue: JobQueue) -> None:
        worker = self._idle.pop()
        spans = worker.files.job.write(job, known)
        try:
            result = worker.submit(work, self._version, shared, spans)
        except BrokenProcessPool:  # it died while it had nothing to do
            self._lose(worker, job, queue)
        else:
            self._running[result] = _Running(worker, job)

    def _collect(self, queue: JobQueue, take: Callable[[Any, Any], None]) -> None:
        """Wait for results, but not for long."""
        for result in wait(self._running, _LOOK_SECONDS, FIRST_COMPLETED).done:
            running = self._running.pop(result)
            worker, job, seconds = running.worker, running.job, time.monotonic() - running.begun
            self._idle.append(worker)
            try:
                reply = result.result()
            except BrokenProcessPool:
                self._lose(worker, job, queue)
                continue
            self._early_deaths = 0
            self._slowest = max(self._slowest, seconds)
            self._slowest_sample = max(self._slowest_sample, seconds / job.samples)
            if isinstance(reply, bytes):
                queue.failed(job, pickle.loads(reply))
            else:
                queue.done(job)
                take(job, worker.files.result.read(reply, copy=True))

    def _end_hanging(self, queue: JobQueue) -> None:
        """End workers that give no sign of life, or take far longer than others have."""
        elapsed = time.monotonic() - self._last_look
        if elapsed < _LOOK_SECONDS:
            return
        self._last_look += elapsed
        for result, running in list(self._running.items()):
            running.look(min(elapsed, 2 * _LOOK_SECONDS))  # this process may have been stopped itself
            slowest = max(self._slowest, self._slowest_sample * running.job.samples)
            limit = max(HANG_SECONDS, _HANG_FACTOR * slowest) if slowest else math.inf
            if running.silent > HANG_SECONDS or running.seconds > limit:
                del self._running[result]
                self._lose(running.worker, running.job, queue, f"it hung for {running.seconds:.0f} s")

    def _lose(self, worker: PoolWorker, job: Job, queue: JobQueue, why: str = "") -> None:
        """End a worker that is of no more use, and take back its job."""
        how = self._end(worker)
        self._ended = f"{why or how}, over {job.name}"
        queue.lost(job, why or how)

    def _end(self, worker: PoolWorker) -> str:
        if worker in self._idle:
            self._idle.remove(worker)
        if worker in self._new:  # those that die together with it, or later, count no more
            self._early_deaths, self._new = self._early_deaths + 1, []
        self._ended = worker.end()
        return self._ended
