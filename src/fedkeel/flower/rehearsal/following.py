"""Follows a run of a rehearsal to its end: what the server says of it, and whether all processes live."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedkeel.common.errors import DataError, FedkeelError
from fedkeel.flower.rehearsal.rehearsal import Rehearsal, RunStatus
from fedkeel.flower.status import ServerStatus, read_status, status_file
from fedkeel.running.round import Row
from fedkeel.running.run_directory import read_rows

_POLL = 0.3
_ASK_FLOWER_AFTER = 10.0  # seconds without a word of the server, and each time twice as many
_SUBMISSIONS = 3  # Flower fails a run whose server missed its heartbeats, as on a busy machine


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
    *,
    submitted_again: Callable[[RunStatus], None] | None = None,
) -> ServerStatus:
    """Wait until the run has ended; raise where it failed, or where a process of the rehearsal died.

    A run that Flower ended while the server was starting or training is submitted again, three times in
    all, and goes on from its checkpoint; `submitted_again` is called with Flower's reason.
    """
    seen, before, heard = len(read_rows(run_dir)), None, time.monotonic()
    silence, submissions = _ASK_FLOWER_AFTER, 1
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
        stopped = status is not None and status.state == "stopped"
        _check_alive(rehearsal, begun=status is not None and status.state == "running")
        if stopped or time.monotonic() - heard > silence:
            heard, silence = time.monotonic(), 2 * silence
            lost = _lost(rehearsal, run_id, run_dir)
            if lost is not None and submissions == _SUBMISSIONS:
                raise _failed(rehearsal, lost, submissions)
            if lost is not None:
                forget_status(run_dir)
                run_id = rehearsal.submit_again(run_id)
                submissions, silence = submissions + 1, _ASK_FLOWER_AFTER
                if submitted_again is not None:
                    submitted_again(lost)
            elif status is not None and stopped:
                raise RunFailed(f"somebody stopped the run after {status.round} of {status.rounds} rounds")
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


def _lost(rehearsal: Rehearsal, run_id: str, run_dir: Path) -> RunStatus | None:
    """Return Flower's status of a run that is over there, though the server neither finished nor failed.

    Flower stops the server of a run that it has failed, so "stopped" is the server's own end only where
    Flower does not say that the run failed.
    """
    try:
        flower = rehearsal.run_status(run_id)
    except DataError:  # a busy machine: it is asked again
        return None
    status = read_status(run_dir)
    state = "waiting" if status is None else status.state
    if state == "stopped":
        return flower if flower.status == "finished:failed" else None
    return flower if flower.over and state in ("waiting", "running") else None


def _failed(rehearsal: Rehearsal, lost: RunStatus, submissions: int) -> RunFailed:
    log = rehearsal.processes[0]
    return RunFailed(
        f"Flower says that the run is {lost}; the server ended without a word, {submissions} times:\n"
        f"{log.last_words()}\n(all of it: {log.log})"
    )
