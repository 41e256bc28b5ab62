"""Lets the disk be full, or the permission to write be lost, at every place that writes, one by one."""

from __future__ import annotations

import errno
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from harness import Progress, Tally, random_of

import fedkeel as fk
from fedkeel.experiments.experiment import Experiment
from rows.damage import LINE, RUNNER, SMALL, app

NAME = "disk"
FAULT = "the disk is full, or permission is lost, at every place that writes: once, or from then on"
MUST_HOLD = "exit 6 with a message, the last checkpoint intact, exact after space returns"
COUNT = 800

REASONS = (errno.ENOSPC, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO)
POINTS = ("open", "fsync", "replace", "mkdir", "unlink", "posix_fallocate")


class Faults:
    """Counts what is written, and refuses from the n-th time on, or only then."""

    def __init__(self, at: int = 0, reason: int = 0, *, once: bool = False) -> None:
        self.at, self.reason, self.once, self.count = at, reason, once, 0

    def meet(self, where: object) -> None:
        """Count a place that writes, and refuse where it is time to."""
        self.count += 1
        if self.at and (self.count == self.at or (self.count > self.at and not self.once)):
            raise OSError(self.reason, os.strerror(self.reason), where if isinstance(where, str) else None)


class Watched:
    """A file whose writes are counted."""

    def __init__(self, file: BinaryIO, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def write(self, content: bytes) -> int:
        """Write, or refuse to."""
        self._faults.meet(None)
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextmanager
def failing(faults: Faults, below: Path) -> Iterator[None]:
    """Let everything that writes below a directory go through the faults."""
    own = {name: getattr(os, name) for name in (*POINTS, "fdopen")}

    def watched(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            reads = name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR)
            place = args[0] if args and not isinstance(args[0], int) else None
            elsewhere = place is not None and not Path(place).absolute().is_relative_to(below)
            if not (reads or elsewhere):
                faults.meet(None if place is None else str(place))
            return own[name](*args, **kwargs)

        return call

    def opened(handle: int, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        file = own["fdopen"](handle, mode, *args, **kwargs)
        return Watched(file, faults) if mode in ("wb", "ab") else file

    try:
        for name in POINTS:
            setattr(os, name, watched(name))
        os.fdopen = opened  # type: ignore[assignment]
        yield
    finally:
        for name, function in own.items():
            setattr(os, name, function)


def run(scratch: Path, count: int, seed: int, progress: Progress) -> Tally:
    tally = Tally()
    torch.set_num_threads(1)
    with chdir(scratch), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = {name: undisturbed(name, scratch) for name in SCENARIOS}
        progress.say(", ".join(f"{name}: {points} places" for name, (points, _) in known.items()))
        for number in progress.tries(count):
            rng, name = random_of(seed, number), list(SCENARIOS)[number % len(SCENARIOS)]
            points, whole = known[name]
            at = number // len(SCENARIOS) % points + 1  # one after the other
            try_once(number, rng, name, at, whole, scratch, tally)
    return tally


def try_once(
    number: int, rng: random.Random, name: str, at: int, whole: object, scratch: Path, tally: Tally
) -> None:
    """Meet a fault, see how it is told, then go on without it and compare."""
    shutil.rmtree("t", ignore_errors=True)
    reason, once = rng.choice(REASONS), rng.random() < 0.5
    told = f"{name}, place {at}, {errno.errorcode[reason]} {'once' if once else 'from then on'}"
    with failing(Faults(at, reason, once=once), scratch / "t"):
        problem = SCENARIOS[name]()
    if problem not in (None, "refused"):
        tally.fail(number, f"{told}: {problem}")
        return
    again = SCENARIOS[name]()
    if again is not None:
        tally.fail(number, f"{told}: could not go on: {again}")
    elif left_by(name) != whole:
        tally.fail(number, f"{told}: ended otherwise")
    elif problem is None:
        tally.exact += 1  # the fault hit what nothing depends on, as removing an old checkpoint
    else:
        tally.refused += 1


def undisturbed(name: str, scratch: Path) -> tuple[int, object]:
    """Return how many places write, and what a run leaves."""
    shutil.rmtree("t", ignore_errors=True)
    faults = Faults()
    with failing(faults, scratch / "t"):
        problem = SCENARIOS[name]()
    assert problem is None, problem
    return faults.count, left_by(name)


def left_by(name: str) -> list[tuple[str, bytes]]:
    names = ("model.safetensors", "metrics.jsonl", "clients.jsonl", "comparison.toml", "study.json")
    found = sorted(path for path in Path("t").rglob("*") if path.name in names)
    return [(str(path), path.read_bytes()) for path in found]


def train(*settings: str) -> str | None:
    """Train from Python, or go on; return None, "refused", or what is wrong."""
    experiment = Experiment().with_settings([*SMALL, *settings])
    try:
        experiment.train(Path("t"), resume=True)
    except fk.StorageError as problem:
        return "refused" if "t" in str(problem) and problem.exit_code == 6 else f"unclear: {problem}"
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def spilling() -> str | None:
    """Train with the client states in a file."""
    os.environ["FEDKEEL_MEMORY_BUDGET"] = "1"
    try:
        return train("method=scaffold", "rounds=4")
    finally:
        del os.environ["FEDKEEL_MEMORY_BUDGET"]


def command(*words: str) -> str | None:
    result = RUNNER.invoke(app, [*words, *LINE, "--set=rounds=1", "--set=cohort=1", "--out=t"])
    if result.exit_code == 0:
        return None
    if not isinstance(result.exception, SystemExit):
        return f"traceback: {result.exception!r}"
    clear = result.exit_code == 6 and "error: " in result.stderr
    return "refused" if clear else f"code {result.exit_code}: {result.stderr[-300:]}"


SCENARIOS: dict[str, Callable[[], str | None]] = {
    "SCAFFOLD": lambda: train("method=scaffold", "checkpoint_every=1", "rounds=4"),
    "stages without states": lambda: train("method=stages((feddyn, 2), fedavg)", "keep_client_states=false"),
    "memories in a file": spilling,
    "compare": lambda: command("compare", "--method=fedavg", "--method=scaffold", "--seeds=1"),
    "sweep": lambda: command("sweep", "--over=work.lr", "--values=0.1", "--seeds=1", "--parallel=1"),
    "stability study": lambda: command("study", "stability", "--method=fedavg", "--pairs=1"),
}
