"""The progress of `train`: on a terminal, in a notebook, or where it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from fedkeel.common.progress import RunProgress, console
from fedkeel.running.callbacks import Callback
from fedkeel.running.result import Result
from fedkeel.running.round import Row
from fedkeel.settings.run_settings import RunSettings


class OuterDisplay(NamedTuple):
    """The display of several runs, and which of them is made; without a display nothing is shown."""

    display: RunProgress | None
    number: int


_outer: ContextVar[OuterDisplay | None] = ContextVar("_outer", default=None)


class ShowProgress(Callback):
    """Shows a run on a display: as its only one, or as one of several that others begin and end."""

    def __init__(self, display: RunProgress, rounds: int, index: int | None = None) -> None:
        self.display, self.rounds, self.index = display, rounds, index

    def on_run_begin(self, rows: Sequence[Row]) -> None:
        """Show that the run begins."""
        self.display.begin(self.index or 0, len(rows), self.rounds)

    def on_round_end(self, row: Row) -> None:
        """Show a round."""
        self.display.row(row)

    def on_run_end(self, result: Result) -> None:
        """Show how the run ended, and leave a line of it."""
        if self.index is None:
            state = "done" if result.stopped_by is None else f"stopped by {result.stopped_by}"
            self.display.end(0, state, None, rounds=len(result.history), keep=True)


@contextmanager
def shown_run(settings: RunSettings, progress: bool | None) -> Iterator[list[Callback]]:
    """Give the callbacks that show a run: none where it is not to be shown."""
    outer = _outer.get()
    if outer is not None:
        shown = outer.display if progress is not False else None
        yield [] if shown is None else [ShowProgress(shown, settings.rounds, outer.number)]
    elif progress is False or (progress is None and not is_watched()):
        yield []
    else:
        with RunProgress([repr(settings.method)], settings.rounds, stderr=True) as display:
            yield [ShowProgress(display, settings.rounds)]


@contextmanager
def part_of(display: RunProgress | None, index: int) -> Iterator[None]:
    """Show the runs that are made inside the block as one of those on a display, or not at all."""
    token = _outer.set(OuterDisplay(display, index))
    try:
        yield
    finally:
        _outer.reset(token)


def is_watched() -> bool:
    """Tell whether somebody looks: stderr is a terminal, or this is a notebook."""
    stream = sys.stderr
    if stream is None or stream.closed:
        return False
    return stream.isatty() or console(stderr=True).is_jupyter
