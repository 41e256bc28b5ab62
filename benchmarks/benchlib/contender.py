"""The driver's side of the race: a process that runs rounds when told."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchlib.workloads import SOURCE, Workload

KEPT = ", heap kept"
HERE = Path(__file__).parents[1]
_START_SECONDS, _TURN_SECONDS, _END_SECONDS = 100.0, 180.0, 15.0
# glibc gives large freed blocks back at once, and the kernel then clears them anew, page by page.
HEAP_KEPT = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)}
_TURN = 0.25  # a turn of many short rounds lasts about this long


class Failed(Exception):
    """A contender could not start or go on; the message says why."""


class Contender:
    """A child process in turns; `name` is its row in the tables."""

    def __init__(
        self, name: str, command: list[str], workload: Workload, data: str | None, **options: Any
    ) -> None:
        self.name, self.workload, self.facts = name, workload, {}
        job = json.dumps({"workload": workload.to_json(), "data": data, "options": options})
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        paths = [str(HERE), *([str(SOURCE)] if command[0] == sys.executable else [])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"}
        environment |= HEAP_KEPT if name.endswith(KEPT) else {}
        if data is not None and options.get("engine") == "auto":
            environment["XDG_CACHE_HOME"] = str(Path(data).parent)  # it shall decide today, not remember
        self._process = subprocess.Popen(
            [*command, job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=HERE,
            env=environment,
            text=True,
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self.rounds = 1

    def start(self) -> None:
        """Wait until it has warmed up, and find out how many rounds make a turn."""
        try:
            self.facts = self._hear(_START_SECONDS)["ready"]
            self.calibrate()
        except Failed:
            self.close()
            raise

    def calibrate(self) -> None:
        """Find out how many rounds make a turn."""
        self.rounds = 1
        self.rounds = max(1, min(100, round(_TURN / self.turn())))

    def turn(self) -> float:
        """Let it run its rounds; return the seconds of one."""
        try:
            self._process.stdin.write(f"{self.rounds}\n")
            self._process.stdin.flush()
        except OSError:
            raise Failed(self._last_words()) from None
        return float(self._hear(_TURN_SECONDS)["seconds"])

    def close(self) -> None:
        """End it, and whatever it started that is still in its session."""
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._errors.close()

    def _hear(self, patience: float) -> dict[str, Any]:
        if not self._selector.select(patience):
            raise Failed(f"no answer in {patience:g} s")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(_END_SECONDS)
            raise Failed(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"ended with code {self._process.poll()}"


def bare(workload: Workload, data: str | None, name: str, **variant: Any) -> Contender:
    """Return the bare loop: the given variant, else the fastest."""
    return Contender(name, [sys.executable, "-m", "benchlib.bare"], workload, data, **variant)


def ours(workload: Workload, data: str | None, name: str, **options: Any) -> Contender:
    """Return fedkeel with an engine."""
    return Contender(name, [sys.executable, "-m", "benchlib.ours"], workload, data, **options)


def peer(
    name: str, python: Path, workload: Workload, data: str | None, threads: int, **options: Any
) -> Contender:
    """Return a peer in its own environment."""
    script = str(HERE / "peers" / f"{name}_rounds.py")
    return Contender(name, [str(python), script], workload, data, threads=threads, **options)
