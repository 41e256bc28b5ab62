"""A worker process: runs one job after another.

It keeps nothing between two jobs but the run's settings and what the jobs of a round share, so one that dies
or hangs is replaced without a trace.
"""

from __future__ import annotations

import gc
import os
import shutil
import threading
import traceback
from collections.abc import Sequence
from multiprocessing import connection, parent_process, util
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from fedkeel.engines.malloc import keep_freed_memory
from fedkeel.engines.pool.jobs import Job, WorkerState, run_job
from fedkeel.engines.pool.sharing import UNPICKLABLE, SharedFile, Spans, dumps, received
from fedkeel.errors import FedkeelError

_HEARTBEAT = 0.25  # seconds between two signs of life
_ENDING = 2.0  # seconds that a killed process may take to end
_SWITCHES: Any = (  # of torch, for all of a process: they change results
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (lambda: torch.backends.mkldnn.enabled, torch.backends.mkldnn.set_flags),
)


class Files(NamedTuple):
    """What a worker shares with the main process: for the run, for a round, and its own."""

    settings: SharedFile
    shared: SharedFile
    jobs: SharedFile
    results: SharedFile


def torch_switches() -> list[Any]:
    """Return how torch is set in this process."""
    return [read() for read, _ in _SWITCHES]


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
        state = _state(files.settings, *start)
    except Exception as problem:
        pipe.send(_portable(problem))
        return
    pipe.send(None)
    last, shared = 0, None
    while True:
        version, spans, jobs = pipe.recv()
        try:
            if version != last:
                last, shared = version, files.shared.read(spans)
            results = [_result(state, shared, job) for job in files.jobs.read(jobs)]
            written = files.results.write(results, received)
        except Exception as problem:  # of what cannot be read, or sent
            written = files.results.write(_portable(problem), received)
        pipe.send(written)


def _state(file: SharedFile, settings: Spans, channels_last: bool, switches: Sequence[Any]) -> WorkerState:
    for (read, write), setting in zip(_SWITCHES, switches, strict=True):
        if read() != setting:
            write(setting)
    return WorkerState(file.read(settings, private=True), channels_last)


def _result(state: WorkerState, shared: Any, job: Job) -> Any:
    try:
        return run_job(state, shared, job)
    except Exception as problem:
        return _portable(problem)


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


def _portable(problem: Exception) -> bytes:
    """Return an exception as a pickle, with where it was raised where it is none of ours."""
    raised = problem.__cause__ if isinstance(problem, FedkeelError) else problem
    if raised is not None:
        raised.add_note(f"In a worker process:\n{''.join(traceback.format_exception(raised))}")
    try:
        return dumps(problem, received)
    except UNPICKLABLE:
        plain = RuntimeError(f"{type(raised).__name__}: {raised}")
        plain.__dict__.update(__notes__=getattr(raised, "__notes__", []))
        if raised is problem:
            return dumps(plain, received)
        problem.__cause__ = plain
        return dumps(problem, received)
