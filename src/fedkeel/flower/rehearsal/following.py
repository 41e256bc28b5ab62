"""Follows a run of a rehearsal to its end: what the server says of it, and whether all processes live."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedkeel.errors import DataError, FedkeelError
from fedkeel.flower.rehearsal.rehearsal import Rehearsal
from fedkeel.flower.status import ServerStatus, read_status, status_file
from fedkeel.running.round import Row
from fedkeel.running.run_directory import read_rows

_POLL = 0.3
_ASK_FLOWER_AFTER = 10.0  # seconds without a word of the server, and each time twice as many


class RunFailed(FedkeelError):
    """The run of a rehearsal failed; the exit code is that of the server's own error."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def forget_status(run_dir: Path) -> None:
    """Remove what a server said before."""
    status_file(run_dir).unlink(missing_ok=True)


def follow(
    rehearsal: Rehearsal,
    run_id: str,
    run_dir: Path,
    told: Callable[[ServerStatus], None] | None = None,
    row: Callable[[Row], None] | None = None,
) -> ServerStatus:
    """Wait until the run has ended; raise where it failed, or where a process of the rehearsal died."""
    seen, before, heard = len(read_rows(run_dir)), None, time.monotonic()
    silence = _ASK_FLOWER_AFTER
    while True:
        status = read_status(run_dir)
        if status is not None and status != before:
            before, heard = status, time.monotonic()
            if told is not None:
                told(status)
        rows = read_rows(run_dir)
        for one in rows[seen:]:
            heard = time.monotonic()
            if row is not None:
                row(one)
        seen = max(seen, len(rows))
        if status is not None and status.state == "finished":
            return status
        if status is not None and status.state == "failed":
            raise RunFailed(status.message, status.exit_code)
        if status is not None and status.state == "stopped":
            raise RunFailed(f"somebody stopped the run after {status.round} of {status.rounds} rounds")
        _check_alive(rehearsal, begun=status is not None and status.state == "running")
        if time.monotonic() - heard > silence:
            heard, silence = time.monotonic(), 2 * silence
            _check_run(rehearsal, run_id, run_dir)
        time.sleep(_POLL)


def _check_alive(rehearsal: Rehearsal, *, begun: bool) -> None:
    """Raise where the SuperLink has ended, or a node before the first round; later that is the server's."""
    link, *nodes = rehearsal.processes
    if not link.alive:
        raise RunFailed(f"the SuperLink has ended:\n{link.last_words()}\n(all of it: {link.log})")
    ended = [one for one in nodes if not one.alive]
    if ended and (len(ended) == len(nodes) or not begun):
        last = ended[-1]
        raise RunFailed(f"{last.name} has ended; it says:\n{last.last_words()}\n(all of it: {last.log})")


def _check_run(rehearsal: Rehearsal, run_id: str, run_dir: Path) -> None:
    """Raise where Flower says that the run is over and the server has said nothing of it."""
    try:
        flower = rehearsal.run_status(run_id)
    except DataError:  # a busy machine: it is asked again
        return
    status = read_status(run_dir)
    if flower.startswith("finished") and (status is None or status.state in ("waiting", "running")):
        log = rehearsal.processes[0]
        raise RunFailed(
            f"Flower says that the run is {flower}; the server ended without a word:\n{log.last_words()}\n"
            f"(all of it: {log.log})"
        )
