"""Runs side by side: workers that die, and a command that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedkeel.common.errors import RunsLost
from fedkeel.experiments.parallel import run_in_parallel


def deadly(directory: str, name: str, deaths: int) -> str:
    """End the process as often as it is told to, then return."""
    for death in range(deaths):
        marker = Path(directory) / f"{name}-{death}"
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return name.upper()


def made(tmp_path: Path, deaths: dict[str, int], workers: int) -> dict[str, str]:
    found: dict[str, str] = {}
    jobs = {name: (str(tmp_path), name, count) for name, count in deaths.items()}
    run_in_parallel(deadly, jobs, workers, found.__setitem__)
    return found


@pytest.mark.slow(6)
def test_a_worker_that_the_system_kills_halves_how_many_go_on(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"ended a process that made a run .*: going on with 1 at a time"):
        found = made(tmp_path, {"a": 0, "b": 1, "c": 0, "d": 0}, workers=2)
    assert found == {"a": "A", "b": "B", "c": "C", "d": "D"}


@pytest.mark.slow(8)
def test_a_run_that_ends_its_process_twice_while_alone_is_given_up_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        RunsLost, match=r"1 of 3 runs ended their process 2 times while alone, .* given up \(b\)"
    ) as caught:
        made(tmp_path, {"a": 0, "b": 9, "c": 0}, workers=1)
    assert caught.value.exit_code == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b-0", "b-1"]


@pytest.mark.slow(4)
def test_a_run_that_ends_its_process_once_goes_on(tmp_path: Path) -> None:
    assert made(tmp_path, {"a": 1}, workers=1) == {"a": "A"}


def children_of(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(path.name))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def waited(condition: object, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow(15)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_command_that_is_killed_leaves_no_worker_and_goes_on(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "fedkeel", "sweep", "--over", "work.lr", "--values", "0.01,0.1"]
    line += [
        "--seeds",
        "1",
        "--rounds",
        "150",
        "--steps",
        "1",
        "--parallel",
        "2",
        "--engine",
        "serial",
        "--out",
        "s",
    ]
    running = subprocess.Popen(
        line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert waited(lambda: len(list(tmp_path.glob("s/*/seed-*/metrics.jsonl"))) == 2, 60)
    workers = children_of(running.pid)
    assert len(workers) >= 2
    running.kill()
    running.wait()
    assert waited(lambda: not any(map(alive, workers)), 5)
    done = subprocess.run(
        [sys.executable, "-m", "fedkeel", "resume", "s"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Best:" in done.stdout
