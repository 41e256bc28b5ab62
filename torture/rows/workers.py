"""Worker processes that are killed or stopped amid a round, one by one and in bursts."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import torch
from harness import Progress, Tally, random_of
from problems import session_of
from torch import nn

import fedkeel as fk
from fedkeel.engines.pool import pool
from fedkeel.running.session import Session
from fedkeel.tensors.records import leaves

NAME = "workers"
FAULT = "worker killed or stopped mid-round, also in bursts (every 50 ms for a while)"
MUST_HOLD = "bit-identical, no orphan, no left-over shared memory, no hang"
COUNT = 200

_METHODS = (fk.FedAvg(), fk.SCAFFOLD(), fk.FedDyn(0.1), fk.FedInit(0.1))
_BURST_EVERY = 8  # tries
_BURST_SECONDS = 3.0
_HANG_SECONDS = 1.5  # instead of a minute, so that a stopped worker is missed soon
_LONGEST = 120.0  # seconds of a try: more is a hang


def run(scratch: Path, count: int, seed: int, progress: Progress) -> Tally:
    """Disturb the workers of short runs, and compare each with the serial engine."""
    tally, limit = Tally(), pool.HANG_SECONDS
    expected = [_played("serial", number) for number in range(len(_METHODS))]
    pool.HANG_SECONDS = _HANG_SECONDS
    try:
        for number in progress.tries(count):
            problem = _try(random_of(seed, number), number, expected[number % len(_METHODS)], tally)
            if problem is None:
                tally.exact += 1
            else:
                tally.fail(number, problem)
    finally:
        pool.HANG_SECONDS = limit
    return tally


def _try(rng: random.Random, number: int, expected: Session, tally: Tally) -> str | None:
    """Return what went wrong, None where all held."""
    before, started = _shared_files(), time.monotonic()
    seen: set[int] = set()
    try:
        with closing(_session("processes", number)) as session:
            workers, over = session.context.engine.pool, threading.Event()  # type: ignore[attr-defined]
            burst = number % _BURST_EVERY == 0
            disturb = _burst if burst else _single
            thread = threading.Thread(target=disturb, args=(rng, workers, over, seen, tally))
            thread.start()
            try:
                list(session.rounds())
            finally:
                over.set()
                thread.join()
            seen.update(pid for pid in workers.pids if pid)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    if time.monotonic() - started > _LONGEST:
        return f"it took {time.monotonic() - started:.0f} s"
    alive = [pid for pid in seen if _lives(pid)]
    if alive:
        return f"workers live on: {alive}"
    if _shared_files() > before:
        return f"{_shared_files() - before} files of shared memory are left"
    return _difference(expected, session)


def _single(rng: random.Random, workers: Any, over: threading.Event, seen: set[int], tally: Tally) -> None:
    """Kill or stop one worker after another, at random moments."""
    for _ in range(rng.randint(1, 4)):
        if over.wait(rng.uniform(0.0, 0.4)):
            return
        number = signal.SIGSTOP if rng.random() < 0.25 else signal.SIGKILL
        _send(rng, workers, number, seen, tally)


def _burst(rng: random.Random, workers: Any, over: threading.Event, seen: set[int], tally: Tally) -> None:
    """Kill all workers there are, every 50 ms for a while."""
    ends = time.monotonic() + rng.uniform(0.5, _BURST_SECONDS)
    while time.monotonic() < ends and not over.wait(0.05):
        for _ in range(2):
            _send(rng, workers, signal.SIGKILL, seen, tally)
    tally.note("bursts")


def _send(rng: random.Random, workers: Any, number: signal.Signals, seen: set[int], tally: Tally) -> None:
    pids = [pid for pid in workers.pids if pid]
    seen.update(pids)
    if pids:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(pids), number)
            tally.note("stopped" if number == signal.SIGSTOP else "killed")


def _shared_files() -> int:
    """Count what this process holds of shared memory; nothing of it has a name that could be left."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += "memfd:fedkeel" in str(one.readlink())
    return found


def _lives(pid: int) -> bool:
    """Tell whether a process is there, and no zombie that waits to be read."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _session(engine: str, number: int) -> Session:
    rng = torch.Generator().manual_seed(1)
    data = [(torch.randn(24, 6, generator=rng), torch.arange(24) % 3) for _ in range(24)]
    torch.manual_seed(0)
    task = fk.Task(nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)))
    options = {"rounds": 3, "cohort": 19, "work": fk.Work(epochs=6, batch_size=4, lr=0.05)}
    return session_of(
        task,
        fk.Federation.from_arrays(data),
        _METHODS[number % len(_METHODS)],
        **options,
        engine=engine,
        threads=1,
        workers=2,
    )


def _played(engine: str, number: int) -> Session:
    with closing(_session(engine, number)) as session:
        list(session.rounds())
    return session


def _difference(expected: Session, found: Session) -> str | None:
    """Say in what two sessions differ; None where they are the same to the bit."""
    for one, other in zip(leaves(expected.state.server), leaves(found.state.server), strict=True):
        if not torch.equal(one[1], other[1]):
            return f"the server's {one[0]} differs"
    rows = [
        [{name: x for name, x in row.items() if name != "seconds"} for row in session.history]
        for session in (expected, found)
    ]
    if rows[0] != rows[1]:
        return "the history differs"
    if set(expected.store) != set(found.store):
        return "other clients have memories"
    for client in expected.store:
        pairs = zip(leaves(expected.store[client]), leaves(found.store[client]), strict=True)
        if not all(torch.equal(one[1], other[1]) for one, other in pairs):
            return f"the memory of client {client} differs"
    return None
