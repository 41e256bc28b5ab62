"""A worker process: runs one job after another.

It keeps nothing between two jobs but the run's settings and what the jobs of a round share, so one that dies
or hangs is replaced without a trace.
"""

from __future__ import annotations

import gc
import os
import shutil
import threading
from collections.abc import Sequence
from multiprocessing import connection, parent_process, util
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from fedkeel.engines.client import ClientRunner
from fedkeel.engines.jobs.job import Job, make_runner, run_job
from fedkeel.engines.jobs.pickles import Spans, portable, received
from fedkeel.engines.jobs.switches import set_switches
from fedkeel.engines.malloc import keep_freed_memory
from fedkeel.engines.pool.sharing import SharedFile

_HEARTBEAT = 0.25  # seconds between two signs of life
_ENDING = 2.0  # seconds that a killed process may take to end


class Files(NamedTuple):
    """What a worker shares with the main process: for the run, for a round, and its own."""

    settings: SharedFile
    shared: SharedFile
    jobs: SharedFile
    results: SharedFile


def main(pipe: Connection, files: Files, start: tuple[Spans, bool, Sequence[Any]]) -> None:
    """Read the run's settings, then run jobs for ever; what is sent first is the failure to do so, if any.

    A message is where jobs lie, and what those of its version have in common; the answer is where their
    results lie, exceptions as pickles.
    """
    threading.Thread(target=_live_with_parent, args=(files.results.descriptor,), daemon=True).start()
    try:
        _work(pipe, files, start)
    except (EOFError, ConnectionError):  # the main process has ended, or wants no more of this one
        _leave()


def _work(pipe: Connection, files: Files, start: tuple[Spans, bool, Sequence[Any]]) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    gc.freeze()  # collections leave alone what came from the fork server
    try:
        runner = _runner(files.settings, *start)
    except Exception as problem:
        pipe.send(portable(problem, "a worker process"))
        return
    pipe.send(None)
    last, shared = 0, None
    while True:
        version, spans, jobs = pipe.recv()
        try:
            if version != last:
                last, shared = version, files.shared.read(spans)
            results = [_result(runner, shared, job) for job in files.jobs.read(jobs)]
            written = files.results.write(results, received)
        except Exception as problem:  # of what cannot be read, or sent
            written = files.results.write(portable(problem, "a worker process"), received)
        pipe.send(written)


def _runner(file: SharedFile, settings: Spans, channels_last: bool, switches: Sequence[Any]) -> ClientRunner:
    set_switches(switches)
    return make_runner(file.read(settings, private=True), channels_last)


def _result(runner: ClientRunner, shared: Any, job: Job) -> Any:
    try:
        return run_job(runner, shared, job)
    except Exception as problem:
        return portable(problem, "a worker process")


def _live_with_parent(results: int) -> None:
    """Touch the file of results as a sign of life; end with the main process, however that one ended."""
    parent = parent_process()
    assert parent is not None
    while not connection.wait([parent.sentinel], timeout=_HEARTBEAT):
        os.utime(results)
    _leave()


def _leave() -> None:
    """End this process; where the main process was killed, clear up what it left."""
    parent = parent_process()
    if parent is not None and _ended(parent.pid):
        shutil.rmtree(util.get_temp_dir(), ignore_errors=True)  # the main process's: it holds a socket
    os._exit(1)


def _ended(pid: int | None) -> bool:
    """Tell whether a process has ended, or is just ending."""
    try:
        return bool(connection.wait([os.pidfd_open(pid or 0)], timeout=_ENDING))
    except ProcessLookupError:
        return True
    except AttributeError:  # the system cannot tell
        return False
