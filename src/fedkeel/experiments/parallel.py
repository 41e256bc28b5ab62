"""Several runs side by side, each in a process of its own with one thread."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from fedkeel.common.errors import FedkeelError, RunsLost, Stopped

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")

_SECONDS = 1.0  # between two calls of `meanwhile`
_LAST_TRY = 2  # how often a run may end its process while it is alone
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux' prctl


def run_in_parallel(
    function: Callable[..., Found],
    jobs: Mapping[Key, tuple[Any, ...]],
    workers: int,
    take: Callable[[Key, Found], None],
    meanwhile: Callable[[], None] | None = None,
) -> None:
    """Call a function with each job's arguments, `workers` at a time; `take` gets each result as it comes.

    Ctrl-C or an error ends the workers: what they had begun goes on from its checkpoints the next time. Where
    the system kills a worker, as it does when memory runs out, half as many go on, down to one; a run that
    ends its process twice while it is alone is given up, and `RunsLost` names it once the others are done.
    """
    left, deaths, lost = dict(jobs), Counter[Key](), list[Key]()

    def finish(key: Key, found: Found) -> None:
        take(key, found)
        del left[key]

    while left:
        try:
            _run(function, left, workers, finish, meanwhile)
        except BrokenProcessPool:
            if workers > 1:
                workers = max(1, min(workers, len(left)) // 2)
                warnings.warn(
                    "the system ended a process that made a run (is there memory enough?): going on with "
                    f"{workers} at a time",
                    stacklevel=2,
                )
                continue
            first = next(iter(left))
            deaths[first] += 1
            if deaths[first] == _LAST_TRY:
                lost.append(first)
                del left[first]
    if lost:
        raise RunsLost(
            f"{len(lost)} of {len(jobs)} runs ended their process {_LAST_TRY} times while alone, and "
            f"are given up ({', '.join(map(str, lost))}): is there memory enough? The others are finished"
        )


def _run(
    function: Callable[..., Found],
    jobs: Mapping[Key, tuple[Any, ...]],
    workers: int,
    take: Callable[[Key, Found], None],
    meanwhile: Callable[[], None] | None,
) -> None:
    """Do it until all is done, or a worker has died."""
    others = active_children()
    context = get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_prepare_worker, initargs=(os.getpid(),)
    )
    try:
        with _without_script():
            open_jobs = {pool.submit(_call, function, *arguments): key for key, arguments in jobs.items()}
        while open_jobs:
            done, _ = wait(open_jobs, timeout=_SECONDS, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda one: isinstance(one.exception(), BrokenProcessPool)):
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


@contextmanager
def _without_script() -> Iterator[None]:
    """Start workers that do not run the script again, as Python does where it is not guarded by its name."""
    script = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {name: script.pop(name) for name in ("__file__", "__spec__") if name in script}
    script["__spec__"] = None
    try:
        yield
    finally:
        script.update(hidden)


def _call(function: Callable[..., Found], *arguments: Any) -> Found:
    """Call a function in a worker; what there is of a run that an error ended is on disk, and stays here."""
    try:
        return function(*arguments)
    except FedkeelError as problem:
        problem.result = None
        raise


def _prepare_worker(parent: int) -> None:
    """Leave Ctrl-C and a closed terminal to the main process, which ends this one at once; end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    _end_with(parent)
    import torch  # noqa: PLC0415  what only reads runs does without

    torch.set_num_threads(1)


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, however that was.

    On Linux the system does it, also amid a call of C that never returns; elsewhere a thread looks.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS)
    os._exit(128 + signal.SIGKILL)
