"""Shows many runs in progress: a live table on a terminal, a bar in a notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from fedkeel.common.columns import ShownScore, shown_score
from fedkeel.common.progress import NotebookBar, RunsDone, console, plain_table, shown_time
from fedkeel.experiments.run_all import Row, RunEvents, ShownRun
from fedkeel.report.explosion import find_explosion

_PLAIN_SECONDS = 15.0
_LINES = 20  # runs in the table of a terminal


class RunsDisplay(RunEvents):
    """Use it as a context; the runs are kept below `out`. It writes to stderr: stdout is for results."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._runs: dict[Path, ShownRun] = {}
        self._rounds: dict[Path, int] = {}
        self._scores: dict[Path, ShownScore | None] = {}
        self._ends: dict[Path, str] = {}
        self._done = RunsDone(0, 0, 0, 0, None)
        self._last_line = time.monotonic()
        self.console = console(stderr=True)
        self._notebook = NotebookBar() if self.console.is_jupyter else None
        self._live = (
            Live(get_renderable=self._render, console=self.console, transient=True, refresh_per_second=4)
            if self.console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, runs: Sequence[ShownRun], kept: int) -> None:
        """Take the runs, and say how many of them are there."""
        if kept:
            self._print(f"{kept} of {len(runs)} runs are there already in {self._out}")
        self._runs = {run.directory: run for run in runs}
        self._done = RunsDone(0, len(runs), 0, sum(run.rounds for run in runs), None)

    def row(self, run: ShownRun, row: Row) -> None:
        """Show a round."""
        self._rounds[run.directory] = (
            row["round"] + 1 if "round" in row else self._rounds.get(run.directory, 0)
        )
        self._scores[run.directory] = shown_score(row) or self._scores.get(run.directory)

    def ended(self, run: ShownRun, result: Any, *, kept: bool) -> None:
        """Show how a run ended."""
        problem = result.problem or find_explosion(result.rows)
        end = f"diverged: {problem}" if problem else "kept from before" if kept else "done"
        self._ends[run.directory], self._rounds[run.directory] = end, len(result.rows)
        self._scores[run.directory] = shown_score(result.rows[-1]) if result.rows else None
        self._done = self._done._replace(runs=len(self._ends))
        if self._notebook is not None:
            self._show_in_notebook(last=len(self._ends) == len(self._runs))
        elif self._live is None and (not kept or len(self._runs) <= _LINES):
            trained = bool(result.rows) and "train_loss" in result.rows[-1]
            self._print(f"{self._about(run)}, {end}" if trained or problem else f"{run}: {end}")

    def progress(self, done: RunsDone, rounds: Mapping[Path, int]) -> None:
        """Show how far all are."""
        self._done = done
        self._rounds.update({path: count for path, count in rounds.items() if path not in self._ends})
        if self._notebook is not None:
            self._show_in_notebook()
        elif self._live is None and time.monotonic() - self._last_line > _PLAIN_SECONDS:
            self._print(str(done))

    def _show_in_notebook(self, *, last: bool = False) -> None:
        assert self._notebook is not None
        self._notebook.show(self._done.runs, self._done.all_runs, str(self._done), last=last)

    def _print(self, text: str) -> None:
        self.console.print(text, style="dim", markup=False, soft_wrap=True)
        self.console.file.flush()
        self._last_line = time.monotonic()

    def _about(self, run: ShownRun) -> str:
        score = self._scores.get(run.directory) or "not evaluated"
        return f"{run}: round {self._rounds.get(run.directory, 0)}/{run.rounds}, {score}"

    def _render(self) -> RenderableType:
        bar = Table.grid(padding=(0, 2))
        left = "" if self._done.left is None else f"time left {shown_time(self._done.left)}"
        bar.add_row(
            ProgressBar(total=self._done.all_rounds, completed=self._done.rounds, width=30),
            f"round {self._done.rounds}/{self._done.all_rounds}",
            left,
        )
        rows = [
            (
                str(run),
                f"{self._rounds.get(path, 0)}/{run.rounds}",
                str(self._scores.get(path) or "—"),
                self._ends.get(path, "running" if self._rounds.get(path) else "waiting"),
            )
            for path, run in self._shown()
        ]
        hidden = len(self._runs) - len(rows)
        more = [f"and {hidden} more"] if hidden else []
        return Group(bar, "", plain_table(("run", "round", "score", ""), rows), *more)

    def _shown(self) -> list[tuple[Path, ShownRun]]:
        """Return the runs of the table: those that go on, then the ones to come, then the last that ended."""
        if len(self._runs) <= _LINES:
            return list(self._runs.items())
        latest = {path: index for index, path in enumerate(self._ends)}
        ranked = sorted(
            self._runs, key=lambda path: (path in latest, not self._rounds.get(path), -latest.get(path, 0))
        )
        chosen = set(ranked[:_LINES])
        return [(path, run) for path, run in self._runs.items() if path in chosen]
