"""Where workers come from: multiprocessing's fork server, which has imported torch and computed nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing import context, forkserver, resource_tracker
from types import ModuleType
from typing import Any

from fedkeel.engines.pool import worker
from fedkeel.engines.pool.jobs import Job
from fedkeel.engines.pool.sharing import Known, SharedFile, Spans

_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_hiding = threading.Lock()


def start_fork_server() -> None:
    """Start this process's fork server where none runs; it imports torch while this process goes on."""
    resource_tracker.ensure_running()  # now, for it would let interrupts through
    forkserver.set_forkserver_preload([worker.__name__, "concurrent.futures.process"])
    before = {name: os.environ.pop(name) for name in _ONE_THREAD if name in os.environ}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the main process alone
    try:
        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))  # what forks must have no other threads
        forkserver.ensure_running()
    finally:
        for name in _ONE_THREAD:
            del os.environ[name]
        os.environ.update(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def script_hidden() -> Iterator[None]:
    """Hide this process's script from processes that start in the block: they would import it."""
    with _hiding:
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


class PoolWorker:
    """A worker process: a pool of its own, so that its death is known to be over its job alone."""

    job: Job  # the last one

    def __init__(self, settings: SharedFile, shared: SharedFile, start: tuple[Any, ...]) -> None:
        self.files = worker.Files(settings, shared, SharedFile(), SharedFile())
        self.result: Future[Any] | None = None  # of its job, if it has one
        self._sign = 0.0
        self._context = _OneWorker()
        self._pool = ProcessPoolExecutor(1, self._context, worker.begin, (self.files,))
        start_fork_server()
        with script_hidden():
            self.started = self._pool.submit(worker.start, *start)

    @property
    def pid(self) -> int | None:
        """Return its process id."""
        return self._context.process.pid

    def give(self, job: Job, version: int, shared: Spans, known: Known) -> None:
        """Let it run a job; raise `BrokenProcessPool` where it has died."""
        self.job, self.begun, self.seconds, self.silent = job, time.monotonic(), 0.0, 0.0
        spans = self.files.job.write(job, known)
        self.result = self._pool.submit(worker.work, version, shared, spans)

    def look(self, seconds: float) -> None:
        """Note that so many seconds have passed, with or without a sign of life."""
        before, self._sign = self._sign, os.stat(self.files.result.descriptor).st_mtime
        self.seconds += seconds
        self.silent = self.silent + seconds if self._sign == before else 0.0

    def end(self) -> str:
        """End the process, if it has not ended by itself; return how it did."""
        process = self._context.process
        process.kill()
        self._pool.shutdown()
        code = process.exitcode or 0
        process.close()
        self.files.job.close()
        self.files.result.close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


class _OneWorker(context.ForkServerContext):
    """The context of a pool with one worker: remembers its process, and makes no locks.

    Those of multiprocessing have names in /dev/shm, and stay there when everything is killed at once.
    """

    process: context.ForkServerProcess

    def Process(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # noqa: N802
        self.process = context.ForkServerProcess(*args, **kwargs)
        return self.process

    def Lock(self) -> Any:  # noqa: N802
        return _NoLock()

    def BoundedSemaphore(self, value: int = 1) -> Any:  # noqa: N802
        return _NoLock()


class _NoLock(nullcontext[None]):
    """Stands in for the locks of a pool's queues, of which each has one reader and one writer."""

    def acquire(self, *_: Any) -> bool:
        return True

    def release(self) -> None:
        pass

    @property
    def _semlock(self) -> _NoLock:
        return self

    def _is_zero(self) -> bool:
        return False  # nobody has to wait for room in the queue
