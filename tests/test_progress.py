"""How far a run is: what is shown, where, and how long it will still take."""

from __future__ import annotations

import re

import pytest

from fedkeel.progress import RoundTimes, RunProgress, TimeLeft


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
