"""The progress of `train`: on a terminal, in a notebook, or where it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from fedkeel.progress import RunProgress, console
from fedkeel.running.callbacks import Callback
from fedkeel.running.result import Result
from fedkeel.running.round import Row
from fedkeel.settings import RunSettings

_outer: ContextVar[RunProgress | None] = ContextVar("outer", default=None)  # of several runs, one being this


class ShowProgress(Callback):
    """Shows a run on a display."""

    def __init__(self, display: RunProgress, index: int = 0) -> None:
        self.display, self.index = display, index

    def on_run_begin(self, rows: Sequence[Row]) -> None:
        """Show that the run begins."""
        self.display.begin(self.index, len(rows))

    def on_round_end(self, row: Row) -> None:
        """Show a round."""
        self.display.row(row)

    def on_run_end(self, result: Result) -> None:
        """Show how the run ended."""
        rows = result.history
        state = "done" if result.stopped_by is None else f"stopped by {result.stopped_by}"
        self.display.end(self.index, state, None, rounds=len(rows), keep=True)


@contextmanager
def shown_run(settings: RunSettings, progress: bool | None) -> Iterator[list[Callback]]:
    """Give the callbacks that show a run: none where it is not to be shown."""
    if progress is False or (progress is None and not is_watched()):
        yield []
        return
    with RunProgress([repr(settings.algorithm)], settings.rounds, stderr=True) as display:
        yield [ShowProgress(display)]


def is_watched() -> bool:
    """Tell whether somebody looks: stderr is a terminal, or this is a notebook."""
    return sys.stderr.isatty() or console(stderr=True).is_jupyter
