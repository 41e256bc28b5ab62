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
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left", no_wrap=index > 0)
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


class TimeLeft:
    """Counts rounds (or runs) and estimates the time left from those that were done in this session."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.done_now = total, 0, 0
        self.started = time.monotonic()

    def count(self, *, now: bool = True) -> None:
        """Count one, done now or before."""
        self.done += 1
        self.done_now += now

    def __str__(self) -> str:
        if not self.done_now:
            return "…"
        each = (time.monotonic() - self.started) / self.done_now
        return shown_time(each * (self.total - self.done))


class RunProgress:
    """Shows runs in progress. `stderr` keeps stdout free for JSON."""

    def __init__(self, names: Sequence[str], rounds: int, *, stderr: bool = False) -> None:
        self.names, self.rounds = list(names), rounds
        self.time_left = TimeLeft(rounds * len(names))
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
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def begin(self, index: int, done: int = 0) -> None:
        """Show that a run begins, or goes on after `done` rounds."""
        self.current, self.states[index], self.done[index] = index, "running", done
        self.time_left.done += done
        self.recent = []

    def row(self, row: Mapping[str, Any]) -> None:
        """Show a round of the current run."""
        self.time_left.count()
        index = self.current
        self.done[index] = row["round"] + 1
        if row.get("accuracy") is not None:
            self.accuracies[index] = row["accuracy"]
            self.recent = [*self.recent, row][-_RECENT:]
        if self.live is None and self._line_is_due():
            self._print(f"{self._about(index)}, {self.time_left} left")

    def end(self, index: int, state: str, accuracy: float | None, *, rounds: int | None = None) -> None:
        """Show how a run ended, after how many rounds; what it had left is not waited for any more."""
        self.time_left.done = (index + 1) * self.rounds
        self.states[index], self.accuracies[index] = state, accuracy
        if rounds is not None:
            self.done[index] = rounds
        if self.live is None:
            self._print(f"{self._about(index)}, {state}")

    def _line_is_due(self) -> bool:
        if time.monotonic() - self._last_line > _PLAIN_SECONDS:
            return True
        tenth = max(1, self.rounds // 10)
        done = self.done[self.current]
        return len(self.names) == 1 and done % tenth == 0 and done < self.rounds

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)
        self.console.file.flush()
        self._last_line = time.monotonic()

    def _about(self, index: int) -> str:
        rounds = f"round {self.done[index]}/{self.rounds}"
        return f"{self.names[index]}: {rounds}, accuracy {self._accuracy(index)}"

    def _accuracy(self, index: int) -> str:
        accuracy = self.accuracies[index]
        return "—" if accuracy is None else f"{100 * accuracy:.1f} %"

    def _render(self) -> RenderableType:
        bar = Table.grid(padding=(0, 2))
        done, total = self.time_left.done, self.time_left.total
        bar.add_row(
            ProgressBar(total=total, completed=done, width=30),
            f"round {done}/{total}",
            f"time left {self.time_left}",
        )
        return Group(bar, "", self._recent_rounds() if len(self.names) == 1 else self._runs())

    def _runs(self) -> Table:
        rows = [
            (name, f"{self.done[i]}/{self.rounds}", self._accuracy(i), self.states[i])
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
