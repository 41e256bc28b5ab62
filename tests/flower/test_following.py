"""Following a run that Flower gives up, without Flower."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedkeel.flower.rehearsal import following
from fedkeel.flower.rehearsal.following import RunFailed, follow
from fedkeel.flower.rehearsal.rehearsal import RunStatus
from fedkeel.flower.status import ServerStatus, State, write_status

FAILED = RunStatus("finished:failed", "No heartbeat received from the task")
RUNNING = RunStatus("running")


class Link:
    """A SuperLink that lives."""

    alive, log = True, "superlink.log"

    def last_words(self) -> str:
        return "no heartbeat"


class FakeRehearsal:
    """Says of each run what it is told to, and lets the server write its status when one is submitted."""

    def __init__(self, answers: dict[str, RunStatus], server: Callable[[str], None]) -> None:
        self.processes, self.submitted = [Link()], ["1"]
        self._answers, self._server = answers, server
        server("1")

    def run_status(self, run_id: str) -> RunStatus:
        return self._answers[run_id]

    def submit_again(self, run_id: str) -> str:
        assert run_id == self.submitted[-1]
        self.submitted.append(str(len(self.submitted) + 1))
        self._server(self.submitted[-1])
        return self.submitted[-1]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_POLL", 0.0)
    monkeypatch.setattr(following, "_ASK_FLOWER_AFTER", 0.0)


def writing(run_dir: Path, states: dict[str, State | None]) -> Callable[[str], None]:
    def server(run_id: str) -> None:
        state = states[run_id]
        if state is not None:
            write_status(run_dir, ServerStatus(state, message="no such model", rounds=5))

    return server


@pytest.mark.parametrize("state", [None, "waiting", "running", "stopped"])
def test_a_run_that_flower_gives_up_is_submitted_again(tmp_path: Path, state: State | None) -> None:
    run_dir = tmp_path / "run"
    rehearsal: Any = FakeRehearsal({"1": FAILED}, writing(run_dir, {"1": state, "2": "finished"}))
    reasons: list[RunStatus] = []
    status = follow(rehearsal, "1", run_dir, submitted_again=reasons.append)
    assert status.state == "finished"
    assert rehearsal.submitted == ["1", "2"]
    assert reasons == [FAILED]


def test_three_times_in_all_with_flowers_reason(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    states: dict[str, State | None] = {"1": "running", "2": None, "3": "stopped"}
    rehearsal: Any = FakeRehearsal(dict.fromkeys(states, FAILED), writing(run_dir, states))
    with pytest.raises(RunFailed, match=r"No heartbeat received from the task.*3 times"):
        follow(rehearsal, "1", run_dir)
    assert rehearsal.submitted == ["1", "2", "3"]


def test_a_server_that_says_why_it_failed_is_not_started_again(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    rehearsal: Any = FakeRehearsal({"1": FAILED}, writing(run_dir, {"1": "failed"}))
    with pytest.raises(RunFailed, match="no such model"):
        follow(rehearsal, "1", run_dir)
    assert rehearsal.submitted == ["1"]


@pytest.mark.parametrize("flower", [RUNNING, RunStatus("finished:stopped")])
def test_a_run_that_somebody_stopped_is_not_started_again(tmp_path: Path, flower: RunStatus) -> None:
    run_dir = tmp_path / "run"
    rehearsal: Any = FakeRehearsal({"1": flower}, writing(run_dir, {"1": "stopped"}))
    with pytest.raises(RunFailed, match="somebody stopped the run after 0 of 5 rounds"):
        follow(rehearsal, "1", run_dir)
    assert rehearsal.submitted == ["1"]
