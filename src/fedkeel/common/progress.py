"""Progress of runs: a live table on a terminal, a bar in a notebook, few plain lines elsewhere."""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedkeel.common.columns import SKIPPED, ShownScore, shown_score

_RECENT = 8
_PLAIN_SECONDS = 15.0
_PLAIN_WIDTH = 200
_NOTEBOOK_SECONDS = 0.25
_WARM_UP = 1  # rounds of a run that load, compile and fill caches: no later round takes as long
_ENOUGH = 2  # rounds to measure before anything is said
_WINDOW = 16  # recent rounds that count
_WAITING, _RUNNING = "waiting", "running"
_TRAINING = "train loss"  # shown where nothing is evaluated


def console(*, stderr: bool = False) -> Console:
    """Return a console; without a terminal lines are not cut to its width."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Console(file=stream, highlight=False, emoji=False, width=width)


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without frames: the first column to the left, the others to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if index else "left", no_wrap=index > 0)
    for row in rows:
        table.add_row(*map(Text, row))  # as text: a name may hold what rich would read as markup
    return table


def as_lines(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain table as text, as wide as it is."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = (
        "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in (headings, *rows))
    )
    return "\n".join(line.rstrip() for line in lines)


def shown_time(seconds: float) -> str:
    """Return a length of time in the two units that matter."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class TimeLeft:
    """Estimates the time left of whole runs, `at_once` of them side by side, from those done in this session.

    It says nothing before as many are done: of the first ones of a group all seem slow.
    """

    def __init__(self, total: int, at_once: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.at_once, self.done, self.done_now = total, at_once, 0, 0
        self._clock, self._started = clock, clock()

    def count(self, *, now: bool = True) -> None:
        """Count one, done now or before."""
        self.done += 1
        self.done_now += now

    def __str__(self) -> str:
        if self.done_now < self.at_once or self.done == self.total:
            return ""
        each = (self._clock() - self._started) / self.done_now
        return f", {shown_time(each * (self.total - self.done))} left"


class RunsDone(NamedTuple):
    """How far many runs are: runs and rounds, done and in all, and the seconds that are left, where known."""

    runs: int
    all_runs: int
    rounds: int
    all_rounds: int
    left: float | None

    def __str__(self) -> str:
        text = f"{self.runs} of {self.all_runs} runs, {self.rounds:,} of {self.all_rounds:,} rounds"
        return text if self.left is None else f"{text}, {shown_time(self.left)} left"


class RoundTimes:
    """Estimates what the rounds that are left will take.

    The first round of a run is left out: it loads, compiles and fills caches. A median over the recent rounds
    is not moved by a single slow one; rounds with an evaluation and without one have a median each.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last = clock, clock()
        self._counts: list[int] = [0, 0]  # measured rounds of this run, without and with an evaluation
        self._recent: list[deque[float]] = [deque(maxlen=_WINDOW), deque(maxlen=_WINDOW)]
        self._seen = 0
        self._before: list[float] = []  # seconds per round of the runs before

    def begin(self) -> None:
        """Begin with another run."""
        each = self.each()
        if each is not None:
            self._before.append(each)
        self._last, self._seen, self._counts = self._clock(), 0, [0, 0]
        for times in self._recent:
            times.clear()

    def count(self, *, evaluated: bool) -> None:
        """Take the time of a round that has ended now."""
        now, self._seen = self._clock(), self._seen + 1
        if self._seen > _WARM_UP:
            self._counts[evaluated] += 1
            self._recent[evaluated].append(now - self._last)
        self._last = now

    def each(self) -> float | None:
        """Return the seconds of a round of this run; None until there is enough to go by."""
        total = sum(self._counts)
        if total < _ENOUGH:
            return None
        kinds = zip(self._counts, self._recent, strict=True)
        return sum(count / total * statistics.median_low(times) for count, times in kinds if count)

    def left(self, own: int, others: int) -> float | None:
        """Return the seconds that so many rounds of this run and of further runs will take; None: unknown."""
        each = self.each()
        known = self._before if each is None else [*self._before, each]
        if not known:
            return None
        mean = statistics.fmean(known)
        return own * (mean if each is None else each) + others * mean


class NotebookBar:
    """A bar in the output of a notebook's cell; it needs no widgets."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = -_NOTEBOOK_SECONDS

    def show(self, done: int, total: int, text: str, *, last: bool = False) -> None:
        """Show progress, at most four times per second; always if `last`."""
        if not last and time.monotonic() - self._shown < _NOTEBOOK_SECONDS:
            return
        self._shown = time.monotonic()
        bar = f'<progress value="{done}" max="{total}" style="width: 16em"></progress>'
        bundle = {"text/html": f"<div>{bar} {escape(text)}</div>", "text/plain": text}
        if self._handle is None:
            self._handle = import_module("IPython.display").display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


class RunProgress:
    """Shows runs in progress. `stderr` keeps stdout free for JSON."""

    def __init__(self, names: Sequence[str], rounds: int, *, stderr: bool = False) -> None:
        self.names, self.rounds = list(names), rounds
        self.times = RoundTimes()
        self.states: list[str] = [_WAITING] * len(names)
        self.scores: list[ShownScore | None] = [None] * len(names)
        self.done = [0] * len(names)
        self.skipped = [0] * len(names)
        self.recent: list[Mapping[str, Any]] = []
        self.current = 0
        self.console = console(stderr=stderr)
        self.notebook = NotebookBar() if self.console.is_jupyter else None
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

    def begin(self, index: int, done: int = 0, rounds: int | None = None) -> None:
        """Show that a run begins, or goes on after `done` rounds; `rounds`: of each run, where now known."""
        self.rounds = self.rounds if rounds is None else rounds
        self.current, self.states[index], self.done[index] = index, _RUNNING, done
        self.times.begin()
        self.recent = []

    def row(self, row: Mapping[str, Any]) -> None:
        """Show a round of the current run."""
        index = self.current
        self.times.count(evaluated=shown_score(row) is not None)
        if self._note(index, row):
            self.recent = [*self.recent, row][-_RECENT:]
        if self.notebook is not None:
            self.notebook.show(*self._overall(), f"{self._about(index)}{self._left(', {} left')}")
        elif self.live is None and self._line_is_due():
            self._print(f"{self._about(index)}{self._left(', {} left')}")

    def end(
        self, index: int, state: str, accuracy: float | None, *, rounds: int | None = None, keep: bool = False
    ) -> None:
        """Show how a run ended, after how many rounds; what it had left is not waited for any more.

        `keep` leaves a line on a terminal too, where the table goes away.
        """
        self.states[index] = state
        if accuracy is not None:
            self.scores[index] = shown_score({"accuracy": accuracy})
        if rounds is not None:
            self.done[index] = rounds
        if self.notebook is not None:
            self.notebook.show(*self._overall(), f"{self._about(index)}, {state}", last=True)
        elif keep or self.live is None:
            self._print(f"{self._about(index)}, {state}")

    def _note(self, index: int, row: Mapping[str, Any]) -> bool:
        """Keep how far a run is, and its score; tell whether the row says something of that."""
        score, before = shown_score(row), self.scores[index]
        self.done[index] = row["round"] + 1
        self.skipped[index] += len(row.get(SKIPPED, ()))
        if score is None and before is not None and before.name != _TRAINING:
            return False
        self.scores[index] = score or ShownScore(_TRAINING, f"{row['train_loss']:.4f}")
        return True

    def _overall(self) -> tuple[int, int]:
        """Return the rounds that are done or will not come any more, and all."""
        ended = (self.states[i] not in {_WAITING, _RUNNING} for i in range(len(self.names)))
        if self.rounds == 0:  # runs that show nothing of themselves: they are counted instead
            return sum(ended), len(self.names)
        done = sum(self.rounds if over else self.done[i] for i, over in enumerate(ended))
        return done, self.rounds * len(self.names)

    def _left(self, text: str) -> str:
        """Return the text with the time left in it; nothing while that is unknown, or none is left."""
        done, total = self._overall()
        running = self.states[self.current] == _RUNNING
        own = self.rounds - self.done[self.current] if running else 0
        seconds = self.times.left(own, total - done - own)
        return "" if seconds is None or done >= total else text.format(shown_time(seconds))

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
        score = self.scores[index] or "accuracy —"
        of_all = f"/{self.rounds}" if self.rounds else ""
        absent = f", {self.skipped[index]} skipped" if self.skipped[index] else ""
        return f"{self.names[index]}: round {self.done[index]}{of_all}, {score}{absent}"

    def _render(self) -> RenderableType:
        bar = Table.grid(padding=(0, 2))
        done, total = self._overall()
        bar.add_row(
            ProgressBar(total=total, completed=done, width=30),
            f"round {done}/{total}",
            self._left("time left {}"),
        )
        return Group(bar, "", self._recent_rounds() if len(self.names) == 1 else self._runs())

    def _runs(self) -> Table:
        shown = [score for score in self.scores if score is not None]
        heading = shown[0].name if shown else "accuracy"
        values = [_value(score, heading) for score in self.scores]
        rows = [
            (name, f"{self.done[i]}/{self.rounds}", values[i], self.states[i])
            for i, name in enumerate(self.names)
        ]
        return plain_table(("run", "round", heading, ""), rows)

    def _recent_rounds(self) -> Table:
        rows = [
            (
                str(row["round"] + 1),
                "—" if row["loss"] is None else f"{row['loss']:.4f}",
                "—" if row["accuracy"] is None else f"{100 * row['accuracy']:.1f} %",
                f"{row['train_loss']:.4f}",
                f"{row['seconds']:.2f}",
                *((str(len(row.get(SKIPPED, ()))),) if self.skipped[0] else ()),
            )
            for row in self.recent
        ]
        headings = (self.names[0] + " · round", "loss", "accuracy", "train loss", "seconds")
        return plain_table((*headings, "skipped") if self.skipped[0] else headings, rows)


def _value(score: ShownScore | None, heading: str) -> str:
    """Return a score without its name, where that is the heading."""
    return "—" if score is None else score.value if score.name == heading else str(score)
