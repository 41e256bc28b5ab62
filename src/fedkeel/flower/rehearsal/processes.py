"""Processes of a rehearsal: each in a group of its own, so that what it starts ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PATIENCE = 5.0  # seconds between asking and forcing
_SHOWN_LINES = 6
_PROC = Path("/proc")

_started: dict[int, subprocess.Popen[bytes]] = {}  # by this process, and not yet ended by it


class Process(NamedTuple):
    """A process that we started: its name, its number, which is its group's too, and when it started.

    The start tells it from a stranger that was given the same number later.
    """

    name: str
    pid: int
    started: str
    log: str

    @property
    def alive(self) -> bool:
        """Tell whether it runs; one that has ended and waits for its parent does not."""
        state, started = _look_up(self.pid)
        return started == self.started and state != "Z"

    def last_words(self) -> str:
        """Return the end of its log."""
        try:
            lines = Path(self.log).read_text(errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join([line for line in lines if line.strip()][-_SHOWN_LINES:])


def start(name: str, command: Sequence[str], *, folder: Path, log: Path, env: Mapping[str, str]) -> Process:
    """Start a process in a group of its own, its output in a log."""
    with log.open("ab") as output:
        made = subprocess.Popen(
            list(command),
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _started[made.pid] = made
    return Process(name, made.pid, _look_up(made.pid)[1], str(log))


def stop(processes: Sequence[Process]) -> list[Process]:
    """End processes and all that they started; return those that would not end."""
    ours = [one for one in processes if _is_ours(one)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in ours:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(one.pid, number)
        end = time.monotonic() + _PATIENCE
        while ours and time.monotonic() < end:
            _reap(ours)
            ours = [one for one in ours if _group_lives(one.pid)]
            time.sleep(0.05)
    return ours


def _is_ours(one: Process) -> bool:
    """Tell whether the group is still that of the process, which may have ended before its children."""
    _, started = _look_up(one.pid)
    return started == one.started or (not started and _group_lives(one.pid))


def _reap(processes: Sequence[Process]) -> None:
    """Hear of the end of those that this process started; of others their own parent hears."""
    for one in processes:
        if one.pid in _started and _started[one.pid].poll() is not None:
            del _started[one.pid]


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return any(_look_up(pid)[0] != "Z" for pid in _members(group))


def _members(group: int) -> list[int]:
    if _PROC.is_dir():
        numbers = [int(one.name) for one in _PROC.iterdir() if one.name.isdigit()]
        return [pid for pid in numbers if (fields := _fields(pid)) and int(fields[2]) == group]
    pairs = (line.split() for line in _ps("-eo", "pid=,pgid=").splitlines())
    return [int(pid) for pid, owner in pairs if int(owner) == group]


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
