"""What a run in progress does when a request lies in its directory, and what it leaves of an interruption."""

from __future__ import annotations

import json
import os
import platform
import signal
import threading
import time
from pathlib import Path
from typing import Any

import flat
import pytest
from problems import tiny_net

import fedkeel as fk
from fedkeel.running import requests
from fedkeel.running.requests import ask
from fedkeel.running.run_directory import INTERRUPTION_FILE, LOCK_FILE, is_held, read_rows

WORK = fk.Work(epochs=1, batch_size=3, lr=0.1)


def train(path: Path, **options: Any) -> fk.Result:
    problem = tiny_net([3, 8, 5, 11, 4, 7])
    given: dict[str, Any] = {"rounds": 6, "cohort": 3, "work": WORK, "engine": "serial", "run_dir": path}
    return flat.train(
        problem.task, problem.federation, fk.SCAFFOLD(), **given | {"checkpoint_every": 100} | options
    )


def when(round: int, do: Any) -> Any:
    return lambda row: do() if row["round"] == round else None


def checkpoints(path: Path) -> list[str]:
    return sorted(one.name for one in (path / "checkpoints").iterdir() if not one.name.startswith("."))


def left(path: Path) -> set[str]:
    return {requests.REQUEST_FILE, requests.PAUSED_FILE} & {one.name for one in path.iterdir()}


def test_a_stop_ends_the_run_as_ctrl_c_does(tmp_path: Path) -> None:
    with pytest.raises(fk.Stopped, match="stopped after 3 of 6 rounds; the last good checkpoint is") as stop:
        train(tmp_path, callbacks=when(2, lambda: ask(tmp_path, "stop")))
    assert len(stop.value.result.history) == 3
    assert not left(tmp_path)
    told = json.loads((tmp_path / INTERRUPTION_FILE).read_text())
    assert (told["kind"], told["message"]) == ("stopped", "stopped after 3 of 6 rounds")
    resumed = train(tmp_path, resume=True)
    assert [row["loss"] for row in resumed.history] == [row["loss"] for row in train(tmp_path / "b").history]
    assert not (tmp_path / INTERRUPTION_FILE).exists()


def test_a_checkpoint_is_written_when_it_is_asked_for(tmp_path: Path) -> None:
    seen = []

    def look(row: dict[str, Any]) -> None:
        if row["round"] == 1:
            ask(tmp_path, "checkpoint")
        seen.append((row["round"], len(checkpoints(tmp_path)) if (tmp_path / "checkpoints").exists() else 0))

    train(tmp_path, callbacks=look)
    assert seen[:3] == [(0, 0), (1, 0), (2, 1)]
    assert not left(tmp_path)


def test_a_paused_run_waits_with_a_checkpoint_until_it_may_continue(tmp_path: Path) -> None:
    waited: dict[str, Any] = {}

    def outside() -> None:
        while not (tmp_path / requests.PAUSED_FILE).exists():
            time.sleep(0.01)
        waited["rows"], waited["files"] = len(read_rows(tmp_path)), checkpoints(tmp_path)
        waited["held"] = is_held(tmp_path)
        ask(tmp_path, "continue")

    other = threading.Thread(target=outside)
    other.start()
    result = train(tmp_path, callbacks=when(3, lambda: ask(tmp_path, "pause")))
    other.join()
    assert waited["rows"] == 4
    assert waited["files"]
    assert waited["held"]
    assert len(result.history) == 6
    assert not left(tmp_path)


@pytest.mark.parametrize("how", ["ctrl-c", "stop"])
def test_a_paused_run_can_be_stopped(tmp_path: Path, how: str) -> None:
    def outside() -> None:
        while not (tmp_path / requests.PAUSED_FILE).exists():
            time.sleep(0.01)
        if how == "stop":
            ask(tmp_path, "stop")
        else:
            os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=outside)
    other.start()
    with pytest.raises(fk.Stopped, match="stopped after 4 of 6 rounds"):
        train(tmp_path, callbacks=when(3, lambda: ask(tmp_path, "pause")))
    other.join()
    assert not left(tmp_path)


def test_requests_left_over_and_words_that_mean_nothing_are_removed(tmp_path: Path) -> None:
    train(tmp_path, rounds=2, keep_client_states=True)
    ask(tmp_path, "stop")
    (tmp_path / requests.PAUSED_FILE).touch()
    nonsense = when(2, lambda: (tmp_path / requests.REQUEST_FILE).write_bytes(b"\xff nonsense" * 1000))
    assert len(train(tmp_path, rounds=4, resume=True, callbacks=nonsense).history) == 4
    assert not left(tmp_path)


def test_a_request_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fk.ConfigError, match="request 'stopp': did you mean 'stop'"):
        ask(tmp_path, "stopp")


def test_a_run_that_diverges_or_fails_says_so_in_its_directory(tmp_path: Path) -> None:
    with pytest.raises(fk.Diverged):
        train(tmp_path / "a", work=fk.Work(epochs=9, batch_size=3, lr=1e300))
    told = json.loads((tmp_path / "a" / INTERRUPTION_FILE).read_text())
    assert told["kind"] == "diverged"
    assert told["message"].startswith("round 0: the norm of the model is inf")

    def fail() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        train(tmp_path / "b", callbacks=when(1, fail))
    told = json.loads((tmp_path / "b" / INTERRUPTION_FILE).read_text())
    assert (told["kind"], told["message"]) == ("failed", "ValueError: on purpose")


def test_the_lock_says_who_holds_it_and_a_second_process_does_not_wipe_that(tmp_path: Path) -> None:
    held = []

    def second() -> None:
        with pytest.raises(fk.StorageError, match="another process is working"):
            train(tmp_path, resume=True)
        held.append((is_held(tmp_path), (tmp_path / LOCK_FILE).read_text()))

    train(tmp_path, callbacks=when(1, second))
    assert held == [(True, f"{platform.node()} {os.getpid()}")]
    assert not is_held(tmp_path)
    (tmp_path / LOCK_FILE).write_text(f"{platform.node()} 99999999999999999999")
    assert not is_held(tmp_path)
    (tmp_path / LOCK_FILE).write_text("another-machine 12")
    assert is_held(tmp_path)
