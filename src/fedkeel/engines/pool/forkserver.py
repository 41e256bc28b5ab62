"""Where workers come from: multiprocessing's fork server, which has imported torch and computed nothing.

A worker is a process and a pipe. `ProcessPoolExecutor` would hand a job through three threads of this process
instead: rounds of 50 small clients took 1.4 times as long.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, context, forkserver, resource_tracker
from types import ModuleType
from typing import Any

from fedkeel.engines.jobs.job import Job
from fedkeel.engines.jobs.pickles import Known, Spans
from fedkeel.engines.pool import worker
from fedkeel.engines.pool.sharing import SharedFile

_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_hiding = threading.Lock()


def start_fork_server() -> None:
    """Start this process's fork server where none runs; it imports torch while this process goes on."""
    resource_tracker.ensure_running()  # now, for it would let interrupts through
    forkserver.set_forkserver_preload([worker.__name__])
    before = {name: os.environ.pop(name) for name in _ONE_THREAD if name in os.environ}
    alone = {signal.SIGINT, signal.SIGHUP}  # Ctrl-C and a closed terminal are for the main process alone
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, alone)
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
    """A worker process, and the jobs that it has."""

    def __init__(self, settings: SharedFile, shared: SharedFile, start: tuple[Any, ...]) -> None:
        self.ready = False
        self.jobs: Sequence[Job] = ()
        self._files = worker.Files(settings, shared, SharedFile(), SharedFile())
        self._sign = 0.0
        self.pipe, theirs = connection.Pipe()
        self._process = context.ForkServerProcess(
            target=worker.main, args=(theirs, self._files, start), daemon=True
        )
        start_fork_server()
        try:
            with script_hidden():
                self._process.start()
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int | None:
        """Return its process id."""
        return self._process.pid

    @property
    def samples(self) -> int:
        """Return the number of samples that its jobs have."""
        return sum(job.samples for job in self.jobs)

    def get_ready(self, seconds: float) -> bytes | None:
        """Return the exception that its start ended with, if any; raise `EOFError` where it died or hangs."""
        if not self.pipe.poll(seconds):
            raise EOFError
        self.ready = True
        failure: bytes | None = self.pipe.recv()
        return failure

    def give(self, jobs: Sequence[Job], version: int, shared: Spans, known: Known) -> None:
        """Let it run jobs; raise `OSError` where it has died."""
        self.jobs, self.begun, self.seconds, self.silent = jobs, time.monotonic(), 0.0, 0.0
        self.pipe.send((version, shared, self._files.jobs.write(jobs, known)))

    def take(self) -> list[Any]:
        """Return its results, and exceptions as pickles; raise `EOFError` or `OSError` where it has died."""
        found = self._files.results.read(self.pipe.recv(), copy=True)
        return [found] * len(self.jobs) if isinstance(found, bytes) else found

    def look(self, seconds: float) -> None:
        """Note that so many seconds have passed, with or without a sign of life."""
        before, self._sign = self._sign, os.stat(self._files.results.descriptor).st_mtime
        self.seconds += seconds
        self.silent = self.silent + seconds if self._sign == before else 0.0

    def end(self) -> str:
        """End the process, if it has not ended by itself; return how it did."""
        self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        self._process.close()
        self._close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _close(self) -> None:
        self.pipe.close()
        self._files.jobs.close()
        self._files.results.close()
