"""A run that is killed at any instant and resumed ends as if nothing had happened, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AT_RANDOM = ("stages", "relaxed")
BEFORE_EVERY_CHANGE = ("SCAFFOLD", "without memories")  # of the disk, and at random

Report = dict[str, dict[str, Any]]


def report_of(scratch: Path, *names: str) -> Report:
    """Kill the runs of these names; return what became of them."""
    script = Path(__file__).with_name("killing.py")
    command = [sys.executable, "-W", "error", str(script), str(scratch), *names]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found: Report = json.loads((scratch / "report.json").read_text())
    return found


@pytest.fixture(scope="module")
def at_random(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of(tmp_path_factory.mktemp("killed"), *AT_RANDOM)


@pytest.fixture(scope="module")
def before_every_change(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of(tmp_path_factory.mktemp("killed"), *BEFORE_EVERY_CHANGE)


def check_ends(found: dict[str, Any]) -> None:
    assert found["whole"]["unfinished"] == []
    assert found["whole"]["rounds timed"] == 5
    for end in found["ends"]:
        assert end == found["whole"]


@pytest.mark.slow(8, thorough=False)
@pytest.mark.parametrize("name", AT_RANDOM)
def test_a_run_that_is_killed_at_random_resumes_to_the_same_bit(at_random: Report, name: str) -> None:
    assert at_random[name]["kills"] > 6
    check_ends(at_random[name])


@pytest.mark.slow(22)
@pytest.mark.parametrize("name", BEFORE_EVERY_CHANGE)
def test_a_run_that_is_killed_before_a_change_of_the_disk_does_too(
    before_every_change: Report, name: str
) -> None:
    found = before_every_change[name]
    assert found["changes"] > 30
    assert found["kills"] > found["changes"] + 6
    check_ends(found)


@pytest.mark.slow(22)  # alone: the runs are those of the test above
def test_what_the_kept_memories_are_the_other_run_leaves_out(before_every_change: Report) -> None:
    kept, without = (before_every_change[name]["whole"] for name in BEFORE_EVERY_CHANGE)
    assert (kept["left out"], without["left out"]) == (0, len(kept["memories"]))
    assert without["memories"] == []
    assert {name: kept[name] for name in ("model", "metrics", "server")} == {
        name: without[name] for name in ("model", "metrics", "server")
    }
