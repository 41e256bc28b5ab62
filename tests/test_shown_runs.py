"""What is shown while many runs are made."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from fedkeel.common.progress import RunsDone
from fedkeel.experiments.run_all import RunMeter, run_all
from fedkeel.experiments.shown_runs import RunsDisplay
from fedkeel.report.tables import Trial


class FakeRun(NamedTuple):
    """A run of three rounds that costs nothing."""

    name: str
    directory: Path
    before: bool = False
    rounds: int = 3
    cost: float = 1.0
    sendable: Any = None

    def __str__(self) -> str:
        return self.name

    def rounds_done(self) -> int:
        return 2

    def finished(self) -> Trial | None:
        return self._trial() if self.before else None

    def run(self, on_row: Any = None) -> Trial:
        for row in self._trial().rows:
            on_row(row)
        return self._trial()

    def _trial(self) -> Trial:
        row = {"loss": 0.5, "accuracy": 0.75, "train_loss": 0.4, "norm": 1.0}
        problem = "the loss is NaN" if self.name == "bad" else None
        return Trial(self.name, 0, [{**row, "round": index} for index in range(3)], problem)


def fakes(tmp_path: Path, *names: str, before: tuple[str, ...] = ()) -> list[FakeRun]:
    return [FakeRun(name, tmp_path / name, name in before) for name in names]


def rendered(display: RunsDisplay) -> str:
    out = Console(file=io.StringIO(), width=100)
    out.print(display._render())
    return out.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_plain_lines_say_how_each_run_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunsDisplay(tmp_path) as display:
        run_all(fakes(tmp_path, "a", "b", "bad", before=("b",)), tmp_path, events=display)
    assert capsys.readouterr().err.splitlines() == [
        f"1 of 3 runs are there already in {tmp_path}",
        "b: round 3/3, accuracy 75.0 %, kept from before",
        "a: round 3/3, accuracy 75.0 %, done",
        "bad: round 3/3, accuracy 75.0 %, diverged: the loss is NaN",
    ]


def test_the_table_of_a_terminal_shows_rounds_scores_and_the_time_left(tmp_path: Path) -> None:
    display, runs = RunsDisplay(tmp_path), fakes(tmp_path, "a", "b")
    assert "round 0/0" in rendered(display)  # before anything is known
    display.begin(runs, 0)
    display.row(runs[0], {"round": 1, "accuracy": 0.5})
    display.progress(RunsDone(0, 2, 2, 6, 90.0), {runs[0].directory: 2, runs[1].directory: 0})
    shown = rendered(display)
    for text in ("round 2/6", "time left 1 min 30 s", "2/3", "accuracy 50.0 %", "running", "waiting"):
        assert text in shown


def test_of_many_runs_the_table_shows_those_that_go_on(tmp_path: Path) -> None:
    display, runs = RunsDisplay(tmp_path), fakes(tmp_path, *(f"run-{index:02}" for index in range(50)))
    display.begin(runs, 0)
    display.row(runs[44], {"round": 0, "accuracy": 0.5})
    shown = rendered(display)
    assert "run-44" in shown
    assert "and 30 more" in shown
    assert shown.count("run-") == 20


def test_the_meter_knows_nothing_left_before_something_was_gained(tmp_path: Path) -> None:
    now = [0.0]
    meter = RunMeter(fakes(tmp_path, "a", "b"), clock=lambda: now[0])
    meter.begin()
    now[0] = 9.0
    assert meter.look() == RunsDone(0, 2, 4, 6, None)
