"""Several runs side by side, each in a process of its own with one thread."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from fedkeel.errors import FedkeelError, Stopped

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")

_SECONDS = 1.0  # between two calls of `meanwhile`


def run_in_parallel(
    function: Callable[..., Found],
    jobs: Mapping[Key, tuple[Any, ...]],
    workers: int,
    take: Callable[[Key, Found], None],
    meanwhile: Callable[[], None] | None = None,
) -> None:
    """Call a function with each job's arguments, `workers` at a time; `take` gets each result as it comes.

    Ctrl-C or an error ends the workers: what they had begun goes on from its checkpoints the next time.
    """
    others = active_children()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_prepare_worker)
    try:
        open_jobs = {pool.submit(_call, function, *arguments): key for key, arguments in jobs.items()}
        while open_jobs:
            done, _ = wait(open_jobs, timeout=_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                take(open_jobs.pop(future), future.result())
            if meanwhile is not None:
                meanwhile()
    except BaseException as problem:
        for worker in active_children():
            if worker not in others:
                worker.terminate()
        if isinstance(problem, KeyboardInterrupt):
            raise Stopped("stopped; runs that were begun go on from their checkpoints") from None
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _call(function: Callable[..., Found], *arguments: Any) -> Found:
    """Call a function in a worker; what there is of a run that an error ended is on disk, and stays here."""
    try:
        return function(*arguments)
    except FedkeelError as problem:
        problem.result = None
        raise


def _prepare_worker() -> None:
    """Leave Ctrl-C and a closed terminal to the main process, which ends this one at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    import torch  # noqa: PLC0415  what only reads runs does without

    torch.set_num_threads(1)
