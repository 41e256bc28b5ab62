"""Progress: a live table on a terminal, few plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

_RECENT = 8
_PLAIN_SECONDS = 15.0
_PLAIN_WIDTH = 200


def console(*, stderr: bool = False) -> Console:
    """Return a console; without a terminal lines are not cut to its width."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else _PLAIN_WIDTH)


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without frames: the first column to the left, the others to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=place > 0)
    for row in rows:
        table.add_row(*row)
    return table


def shown_time(seconds: float) -> str:
    """Return a length of time in the two units that matter."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Clock:
    """Counts rounds and guesses the time left from those that were played in this session."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.played = total, 0, 0
        self.started = time.monotonic()

    def tick(self, *, played: bool = True) -> None:
        """Count a round, played now or before."""
        self.done += 1
        self.played += played

    @property
    def left(self) -> str:
        """The time left, in words."""
        if not self.played:
            return "…"
        each = (time.monotonic() - self.started) / self.played
        return shown_time(each * (self.total - self.done))


class Board:
    """Shows runs in progress. `stderr` keeps stdout free for JSON."""

    def __init__(self, names: Sequence[str], rounds: int, *, stderr: bool = False) -> None:
        self.names, self.rounds = list(names), rounds
        self.clock = Clock(rounds * len(names))
        self.states: list[str] = ["waiting"] * len(names)
        self.accuracies: list[float | None] = [None] * len(names)
        self.done = [0] * len(names)
        self.recent: list[Mapping[str, Any]] = []
        self.current = 0
        self.console = console(stderr=stderr)
        self.live = (
            Live(get_renderable=self._render, console=self.console, transient=True, refresh_per_second=4)
            if self.console.is_terminal
            else None
        )
        self._spoke = time.monotonic()

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def begin(self, place: int, done: int = 0) -> None:
        """Say that a run begins, or goes on after `done` rounds."""
        self.current, self.states[place], self.done[place] = place, "running", done
        self.clock.done += done
        self.recent = []

    def row(self, row: Mapping[str, Any]) -> None:
        """Show a round."""
        self.clock.tick()
        place = self.current
        self.done[place] = row["round"] + 1
        if row.get("accuracy") is not None:
            self.accuracies[place] = row["accuracy"]
            self.recent = [*self.recent, row][-_RECENT:]
        if self.live is None and self._worth_a_line():
            self._speak(f"{self._about(place)}, {self.clock.left} left")

    def end(self, place: int, state: str, accuracy: float | None) -> None:
        """Say how a run ended; what it had left is not waited for any more."""
        self.clock.done = (place + 1) * self.rounds
        self.states[place], self.accuracies[place] = state, accuracy
        if self.live is None:
            self._speak(f"{self._about(place)}, {state}")

    def _worth_a_line(self) -> bool:
        if time.monotonic() - self._spoke > _PLAIN_SECONDS:
            return True
        tenth = max(1, self.rounds // 10)
        done = self.done[self.current]
        return len(self.names) == 1 and done % tenth == 0 and done < self.rounds

    def _speak(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)
        self.console.file.flush()
        self._spoke = time.monotonic()

    def _about(self, place: int) -> str:
        return f"{self.names[place]}: round {self.done[place]}/{self.rounds}, accuracy {self._score(place)}"

    def _score(self, place: int) -> str:
        accuracy = self.accuracies[place]
        return "—" if accuracy is None else f"{100 * accuracy:.1f} %"

    def _render(self) -> RenderableType:
        bar = Table.grid(padding=(0, 2))
        part = f"round {self.clock.done}/{self.clock.total}"
        bar.add_row(
            ProgressBar(total=self.clock.total, completed=self.clock.done, width=30),
            part,
            f"time left {self.clock.left}",
        )
        return Group(bar, "", self._recent_rounds() if len(self.names) == 1 else self._runs())

    def _runs(self) -> Table:
        rows = [
            (name, f"{self.done[i]}/{self.rounds}", self._score(i), self.states[i])
            for i, name in enumerate(self.names)
        ]
        return plain_table(("run", "round", "accuracy", ""), rows)

    def _recent_rounds(self) -> Table:
        rows = [
            (
                str(row["round"] + 1),
                f"{row['loss']:.4f}",
                f"{100 * row['accuracy']:.1f} %",
                f"{row['train_loss']:.4f}",
                f"{row['seconds']:.2f}",
            )
            for row in self.recent
        ]
        return plain_table((self.names[0] + " · round", "loss", "accuracy", "train loss", "seconds"), rows)
