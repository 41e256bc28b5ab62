"""Signals and exceptions that end a run of the command line early."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from harness import Progress, Tally, random_of
from killing import import_ahead

from fedkeel.__main__ import main
from fedkeel.common.progress import RunProgress
from fedkeel.core.oracle import Oracle
from fedkeel.engines.serial import Serial
from fedkeel.experiments.experiment import Experiment

NAME = "signals"
FAULT = "SIGTERM, SIGHUP, SIGINT and pairs of them; exceptions in a forward pass, an evaluation, a callback"
MUST_HOLD = "no finished round lost; right exit code; no traceback; resumed to the bit"
COUNT = 200

_METHODS = ("fedavg", "scaffold", "feddyn(0.1)", "stages((feddyn(0.1), 0.5), fedavg)")
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_ROUNDS = 8
_DEADLINE = 300.0  # seconds of a child
_RUN = "--rounds {rounds} --clients 10 --cohort 3 --epochs 1 --batch-size 20 --engine {engine} --threads 1"


def run(scratch: Path, count: int, seed: int, progress: Progress) -> Tally:
    """End runs early at random moments, then resume each and compare it with one that was left alone."""
    tally, undisturbed = Tally(), dict[tuple[str, str], tuple[str, float]]()
    Experiment().settings()  # so that children find all of it imported
    import_ahead(lambda: _first(scratch / "first"))
    for number in progress.tries(count):
        rng = random_of(seed, number)
        method = rng.choice(_METHODS)
        engine = "processes" if number % 8 == 7 else rng.choice(["serial", "stacked-uncompiled"])
        if (method, engine) not in undisturbed:
            undisturbed[method, engine] = _undisturbed(scratch, method, engine)
        problem = _try(scratch / str(number), rng, number, (method, engine), undisturbed, tally)
        if problem is None:
            tally.exact += 1
        else:
            tally.fail(number, f"{method}, {engine}: {problem}")
        shutil.rmtree(scratch / str(number), ignore_errors=True)
    return tally


def _first(out: Path) -> None:
    """Run the engine that imports most: two seconds of a processor, which every child would spend again."""
    sys.argv = ["fedkeel", *_line(out, "fedavg", "stacked-uncompiled")]
    with (
        Path(os.devnull).open("w") as null,
        redirect_stdout(null),
        redirect_stderr(null),
        suppress(SystemExit),
    ):
        main()


def _undisturbed(scratch: Path, method: str, engine: str) -> tuple[str, float]:
    """Return the fingerprint of a run that is left alone, and what it takes."""
    out, started = scratch / f"{len(list(scratch.iterdir()))}-alone", time.monotonic()
    code, text = _child(_line(out, method, engine), out.with_suffix(".log"))
    assert code == 0, text
    return _fingerprint(out), time.monotonic() - started


def _try(
    out: Path,
    rng: random.Random,
    number: int,
    what: tuple[str, str],
    undisturbed: dict[tuple[str, str], tuple[str, float]],
    tally: Tally,
) -> str | None:
    """Return what went wrong, None where all held."""
    expected, seconds = undisturbed[what]
    kind = rng.choice(("SIGTERM", "SIGHUP", "SIGINT", "two signals", *_FAILURES))
    if what[1] == "processes" and kind in _FAILURES and kind != "callback":
        kind = "SIGTERM"  # workers are processes of their own, in which nothing is patched
    patch = _FAILURES.get(kind, (None, 0))
    send: list[tuple[float, int]] = []
    if kind not in _FAILURES:
        first = signal.Signals[kind] if kind != "two signals" else rng.choice(_SIGNALS)
        send = [(rng.uniform(0, seconds), first)]
        if kind == "two signals":
            send.append((rng.choice([0.0, 0.001, 0.02]), rng.choice(_SIGNALS)))
    at = rng.randint(1, 60)
    prepare = None if patch[0] is None else lambda: patch[0](at)  # type: ignore[misc]
    code, text = _child(_line(out, *what), out.with_suffix(".log"), send, prepare)
    tally.note(kind)
    if "Traceback" in text:
        return f"{kind}: a traceback: {text[-1500:]}"
    done = _rows(out)
    if code == 0:
        tally.note("had finished before")
    elif send and code == -send[0][1] and not text and not out.exists():
        tally.note("ended before fedkeel's own code ran")
    elif code != (patch[1] or 130):
        return f"{kind}: exit code {code}: {text[-600:]}"
    elif done != _checkpoint(out):
        return f"{kind}: {done} rounds are finished and {_checkpoint(out)} in the checkpoint: {text[-600:]}"
    elif done and f"fedkeel resume {out}" not in text:
        return f"{kind}: nothing says how to go on: {text[-600:]}"
    if code:
        begun = (out / "manifest.json").exists()
        line = ["resume", str(out), "--rounds", str(_ROUNDS)] if begun else _line(out, *what)
        code, text = _child(line, out.with_suffix(".log"))
        if code:
            return f"{kind}: cannot be resumed, exit code {code}: {text[-600:]}"
    return None if _fingerprint(out) == expected else f"{kind}: another result after {done} rounds"


def _line(out: Path, method: str, engine: str) -> list[str]:
    return ["run", "--out", str(out), "--method", method, *_RUN.format(rounds=_ROUNDS, engine=engine).split()]


def _child(
    arguments: list[str],
    log: Path,
    send: list[tuple[float, int]] | None = None,
    prepare: Callable[[], None] | None = None,
) -> tuple[int, str]:
    """Run the command line in a child of this process, which has everything imported, and send it signals."""
    pid = os.fork()
    if pid == 0:
        _be_the_command_line(arguments, log, prepare)
    while send and not log.exists():  # before that it is no command line yet
        time.sleep(0.001)
    for wait, number in send or ():
        time.sleep(wait)
        os.kill(pid, number)
    deadline = time.monotonic() + _DEADLINE
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return -1, f"it hung: {log.read_text(errors='replace')}"
        time.sleep(0.005)


def _be_the_command_line(arguments: list[str], log: Path, prepare: Callable[[], None] | None) -> None:
    code = 1
    try:
        for number in _SIGNALS:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.argv = ["fedkeel", *arguments]
        if prepare is not None:
            prepare()
        main()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except BaseException as problem:
        print(f"Traceback: {problem!r}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _failing(owner: Any, name: str, at: int) -> None:
    """Let a method raise when it is called for the `at`-th time."""
    method, calls = getattr(owner, name), [0]

    def fail(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise RuntimeError(f"planted in {name}")
        return method(self, *args, **kwargs)

    setattr(owner, name, fail)


def _forward(at: int) -> None:
    _failing(Oracle, "gradient", at)


def _evaluation(at: int) -> None:
    _failing(Serial, "evaluate", at % _ROUNDS + 1)


def _callback(at: int) -> None:
    _failing(RunProgress, "row", at % _ROUNDS + 1)


# what fails, and the exit code; 1 is that of an exception which is nobody's in particular
_FAILURES: dict[str, tuple[Callable[[int], None], int]] = {
    "forward pass": (_forward, 5),
    "evaluation": (_evaluation, 1),
    "callback": (_callback, 1),
}


def _rows(out: Path) -> int:
    file = out / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def _checkpoint(out: Path) -> int:
    """Return after how many rounds the newest checkpoint was written."""
    found = sorted((out / "checkpoints").glob("round-*"))
    return int(found[-1].name.removeprefix("round-")) if found else 0


def _fingerprint(out: Path) -> str:
    """Return a hash of a finished run's model and history."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = hashlib.sha256((out / "model.safetensors").read_bytes())
    found.update(json.dumps(rows, sort_keys=True).encode())
    return found.hexdigest()
