"""How far a study is: a bar on a terminal, one line per stage elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedkeel.common.progress import console


class StageProgress:
    """Shows the stages of a study as they come; `stderr` keeps stdout free for JSON."""

    def __init__(self, *, stderr: bool = False) -> None:
        self.console = console(stderr=stderr)
        self.stage, self.over = "", ""
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def update(self, stage: str, done: int, total: int) -> None:
        """Show that so much of a stage is done."""
        if self.console.is_terminal:
            if stage != self.stage:
                self.task = self.bar.add_task(stage, total=total)
            self.bar.update(self.task, completed=done)
        elif done == total and stage != self.over:
            self.over = stage
            self.console.print(f"{stage}: {done} of {total} done", markup=False)
        self.stage = stage
