"""How far a run is: what is shown, where, and how long it will still take."""

from __future__ import annotations

import html
import io
import re
import sys
import types
from typing import Any

import flat
import pytest
from problems import tiny_net

import fedkeel as fk
from fedkeel.common.progress import RoundTimes, RunProgress, TimeLeft


class Clock:
    """A clock that stands still until it is told to go on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def row(round: int, **columns: float | None) -> dict[str, float | None]:
    return {"round": round, "loss": 0.5, "accuracy": 0.75, "train_loss": 0.4, "seconds": 0.1, **columns}


def times_of(seconds: list[float], clock: Clock, evaluated: list[bool] | None = None) -> RoundTimes:
    times = RoundTimes(clock)
    times.begin()
    for index, spent in enumerate(seconds):
        clock.now += spent
        times.count(evaluated=True if evaluated is None else evaluated[index])
    return times


def test_nothing_is_said_of_the_time_left_before_two_rounds_after_the_first() -> None:
    assert times_of([60.0], Clock()).left(99, 0) is None
    assert times_of([60.0, 1.0], Clock()).left(99, 0) is None
    assert times_of([60.0, 1.0, 1.0], Clock()).left(97, 0) == pytest.approx(97)


def test_warm_up_and_compilation_are_not_extrapolated() -> None:
    """A minute of compiling before rounds of a second: 100 rounds never look like hours."""
    assert times_of([60.0, 30.0, 1.0], Clock()).left(97, 0) == pytest.approx(97)
    assert times_of([60.0, 1.0, 1.1, 40.0, 1.2], Clock()).left(95, 0) == pytest.approx(95 * 1.1)


def test_rounds_with_an_evaluation_count_by_their_share() -> None:
    evaluated = [True] + [index % 5 == 4 for index in range(40)]
    times = times_of([60.0] + [2.0 if one else 1.0 for one in evaluated[1:]], Clock(), evaluated)
    assert times.left(100, 0) == pytest.approx(120)


def test_further_runs_are_expected_to_take_what_runs_took_so_far() -> None:
    clock = Clock()
    times = times_of([9.0, 1.0, 1.0, 1.0], clock)
    times.begin()
    assert times.left(4, 8) == pytest.approx(12)  # nothing is known of this one: as the one before
    for _ in range(3):
        clock.now += 3.0
        times.count(evaluated=True)
    assert times.left(1, 4) == pytest.approx(3 + 4 * 2)


def test_runs_side_by_side_are_extrapolated_once_a_group_is_done() -> None:
    clock = Clock()
    left = TimeLeft(8, at_once=2, clock=clock)
    clock.now = 10.0
    left.count()
    assert str(left) == ""
    left.count()
    assert str(left) == ", 30 s left"


def test_the_first_lines_of_a_run_say_nothing_of_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress(["FedAvg"], rounds=10) as progress:
        progress.begin(0)
        for round in range(10):
            progress.row(row(round))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FedAvg: round 1/10, accuracy 75.0 %"
    assert ["left" in line for line in lines] == [False, False, *[True] * 7]
    assert re.fullmatch(r"FedAvg: round 3/10, accuracy 75\.0 %, 0 s left", lines[2])


def test_a_task_without_accuracy_shows_its_loss(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress(["FedAvg"], rounds=2) as progress:
        progress.begin(0)
        progress.row(row(0, accuracy=None))
        progress._render()
    assert capsys.readouterr().out == "FedAvg: round 1/2, loss 0.5000\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def train(**options: Any) -> fk.Result:
    problem = tiny_net([3, 8, 5, 11])
    given = {"rounds": 4, "cohort": 2, "work": fk.Work(epochs=1, batch_size=3), "engine": "serial"} | options
    return flat.train(problem.task, problem.federation, fk.FedAvg(), **given)


def test_train_shows_nothing_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    train()
    assert capsys.readouterr() == ("", "")


def test_train_shows_lines_where_it_is_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    train(progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith("FedAvg(lr=1.0): round 1/4, accuracy ")
    assert err.splitlines()[-1].endswith(" %, done")


@pytest.mark.parametrize("progress", [None, False])
def test_train_shows_a_table_on_a_terminal_unless_told_not_to(
    progress: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    train(progress=progress)
    assert ("train loss" in terminal.getvalue()) == (progress is None)
    assert ("round 4/4" in terminal.getvalue()) == (progress is None)


def test_a_notebook_gets_one_bar_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, bundle: dict[str, str], raw: bool) -> None:
            shown.append(bundle)

    def display(bundle: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert not shown, "the bar is shown once and then changed"
        shown.append(bundle)
        return Handle()

    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr("builtins.get_ipython", lambda: shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    module = types.ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    train()
    assert '<progress value="1" max="4"' in shown[0]["text/html"]
    assert '<progress value="4" max="4"' in shown[-1]["text/html"]
    assert shown[-1]["text/plain"].endswith("done")
    shown.clear()
    train(progress=False)
    assert shown == []


def test_results_federations_and_tasks_print_in_a_few_lines() -> None:
    problem, result = tiny_net([3, 8, 5, 11]), train()
    for value, parts in (
        (
            result,
            ("Result of FedAvg(lr=1.0): 4 rounds in", "accuracy", "best", "serial on 1 thread (as asked)"),
        ),
        (problem.federation, ("Federation: 4 clients, 27 samples", "3 to 11 samples", "3 samples", "(3,)")),
        (problem.task, ("Task: Sequential, 44 parameters in float64", "cross_entropy", "accuracy")),
    ):
        assert len(str(value).splitlines()) <= 6
        for part in parts:
            assert part in str(value)
            assert html.escape(part) in value._repr_html_()
    assert repr(result) == str(result)
    assert str(fk.Task(fk.models.mlp)).startswith("Task: a model that mlp makes from the run's seed\n")
