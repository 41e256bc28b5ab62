"""Processes of a rehearsal, each ended with all that it started.

What a process starts may have a session of its own and outlive it: so does what Flower's SuperLink starts,
its SuperExec and all ServerApps. So each carries a mark in its environment, which its children inherit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PATIENCE = 5.0  # seconds between asking and forcing
_SHOWN_LINES = 6
_PROC = Path("/proc")
_MARK = "FEDKEEL_PROCESS"  # the name of an environment variable

_started: dict[int, subprocess.Popen[bytes]] = {}  # by this process, and not yet ended by it


class Process(NamedTuple):
    """A process that we started: its name, its number, when it started, its log, its mark.

    The start tells it from a stranger that was given the same number later.
    """

    name: str
    pid: int
    started: str
    log: str
    mark: str

    @property
    def alive(self) -> bool:
        """Tell whether it runs; one that has ended and waits for its parent does not."""
        state, started = _look_up(self.pid)
        return started == self.started and state != "Z"

    def members(self) -> set[int]:
        """Return the numbers of all that runs of it: itself, its children, theirs."""
        return _marked(f"{_MARK}={self.mark}")

    def last_words(self) -> str:
        """Return the end of its log."""
        try:
            lines = Path(self.log).read_text(errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join([line for line in lines if line.strip()][-_SHOWN_LINES:])


def start(name: str, command: Sequence[str], *, folder: Path, log: Path, env: Mapping[str, str]) -> Process:
    """Start a process in a session of its own, so that Ctrl-C does not reach it; its output goes to a log."""
    mark = uuid.uuid4().hex
    with log.open("ab") as output:
        made = subprocess.Popen(
            list(command),
            cwd=folder,
            env={**env, _MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _started[made.pid] = made
    return Process(name, made.pid, _look_up(made.pid)[1], str(log), mark)


def stop(processes: Sequence[Process]) -> list[Process]:
    """End processes and all that they started; return those of which something would not end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_all(processes, number)
    return [one for one in processes if one.members()]


def kill(process: Process) -> None:
    """End a process and all that it started at once, as a machine does that loses its power."""
    _signal_all([process], signal.SIGKILL)


def _signal_all(processes: Sequence[Process], number: signal.Signals) -> None:
    """Send every member a signal, those too that are started meanwhile; wait until all have ended."""
    end, told = time.monotonic() + _PATIENCE, set[int]()
    while time.monotonic() < end:
        members = {pid for one in processes for pid in one.members()}
        for pid in members - told:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        told |= members
        if not members:
            break
        time.sleep(0.05)
    _reap(processes)


def _reap(processes: Sequence[Process]) -> None:
    """Hear of the end of those that this process started; of others their own parent hears."""
    for one in processes:
        if one.pid in _started and not one.members():
            with suppress(subprocess.TimeoutExpired):
                _started[one.pid].wait(_PATIENCE)
                del _started[one.pid]


_LOOKS, _PAUSE = 20, 0.005  # at a process that has memory and no environment yet
_MEMORY = 20  # the field of a process's size


def _marked(mark: str) -> set[int]:
    """Return the processes that have a variable in their environment; those that have ended have none."""
    if _PROC.is_dir():
        numbers = [int(one.name) for one in _PROC.iterdir() if one.name.isdigit()]
        return {pid for pid in numbers if mark.encode() in _environment(pid)}
    lines = (line.split(maxsplit=1) for line in _ps("-axEww", "-o", "pid=,command=").splitlines())
    return {int(pid) for pid, *told in lines if mark in " ".join(told).split()}


def _environment(pid: int) -> list[bytes]:
    """Return the variables of a process; one that is just being started has none for a moment."""
    for _ in range(_LOOKS):
        try:
            found = (_PROC / str(pid) / "environ").read_bytes()
        except OSError:  # another user's, or ended meanwhile
            return []
        fields = [] if found else _fields(pid)
        if found or not fields or fields[_MEMORY] == "0":  # the kernel's own and those that have ended
            return found.split(b"\0")
        time.sleep(_PAUSE)
    return []


def _look_up(pid: int) -> tuple[str, str]:
    """Return a process's state and when it started; empty where there is none."""
    if _PROC.is_dir():
        fields = _fields(pid)
        return (fields[0], fields[19]) if fields else ("", "")
    state, _, started = _ps("-o", "state=,lstart=", "-p", str(pid)).strip().partition(" ")
    return state[:1], started.strip()


def _fields(pid: int) -> list[str]:
    """Return what Linux says of a process after its name; nothing where there is none."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout
