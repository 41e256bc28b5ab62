"""Requests to a run in progress: a word in a small file of its directory, for which it looks between rounds.

Whoever may write there may ask: `fedkeel watch --control` does. The run removes the file when it does what it
asks for; while it is paused, a second file says so. It takes one question to the file system per round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.common.files import storage_errors, write_durably

PAUSE, CONTINUE, CHECKPOINT, STOP = "pause", "continue", "checkpoint", "stop"
REQUESTS = (PAUSE, CONTINUE, CHECKPOINT, STOP)
REQUEST_FILE, PAUSED_FILE = ".request", ".paused"
_LONGEST = 64  # bytes of a request that are read
_SECONDS = 0.2  # between two looks of a paused run


def ask(directory: Path, request: str) -> None:
    """Ask the run in a directory for something; the newest request counts."""
    if request not in REQUESTS:
        raise ConfigError(f"request {request!r}: {did_you_mean(request, REQUESTS)}")
    with storage_errors(directory):
        write_durably(directory / REQUEST_FILE, request.encode())


class RunRequests:
    """What others ask of a run in progress."""

    def __init__(self, directory: Path) -> None:
        self._request, self._paused = directory / REQUEST_FILE, directory / PAUSED_FILE
        for left_over in (self._request, self._paused):  # of a process that was killed
            _remove(left_over)

    def follow(self, checkpoint: Callable[[], None]) -> None:
        """Do what was asked for; raise KeyboardInterrupt, as Ctrl-C does, where that is to stop."""
        request = self._take()
        if request == STOP:
            raise KeyboardInterrupt
        if request in {PAUSE, CHECKPOINT}:
            checkpoint()
        if request == PAUSE:
            self._wait(checkpoint)

    def _wait(self, checkpoint: Callable[[], None]) -> None:
        with self._says_paused():
            while (request := self._take()) != CONTINUE:
                if request == STOP:
                    raise KeyboardInterrupt
                if request == CHECKPOINT:
                    checkpoint()
                time.sleep(_SECONDS)

    @contextmanager
    def _says_paused(self) -> Iterator[None]:
        try:
            with storage_errors(self._paused):  # inside: Ctrl-C may come right after it
                self._paused.touch()
            yield
        finally:
            _remove(self._paused)

    def _take(self) -> str | None:
        """Return what is asked for, once; None where nothing is."""
        if not os.path.exists(self._request):
            return None
        with storage_errors(self._request):
            with self._request.open("rb") as file:
                word = file.read(_LONGEST)
            _remove(self._request)
        return word.decode(errors="replace").strip()


def _remove(path: Path) -> None:
    if os.path.lexists(path):
        with storage_errors(path):
            path.unlink(missing_ok=True)
