"""A run that is killed at any instant and resumed ends as if nothing had happened, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> dict[str, dict[str, Any]]:
    scratch = tmp_path_factory.mktemp("killed")
    script = Path(__file__).with_name("killing.py")
    command = [sys.executable, "-W", "error", str(script), str(scratch), "0"]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return {found["whole"]["run"]: found for found in json.loads((scratch / "report.json").read_text())}


@pytest.mark.slow(4)
@pytest.mark.parametrize("name", ["SCAFFOLD", "without memories", "stages", "relaxed"])
def test_a_killed_run_resumes_to_the_same_bit(report, name):
    found = report[name]
    assert found["whole"]["unfinished"] == []
    assert found["whole"]["rounds timed"] == 5
    for end in found["ends"]:
        assert end == found["whole"]


@pytest.mark.slow
def test_the_kills_were_many_and_hit_every_change_of_the_disk(report):
    watched = [report["SCAFFOLD"]["changes"], report["without memories"]["changes"]]
    assert min(watched) > 30
    assert sum(found["kills"] for found in report.values()) > sum(watched) + 20


@pytest.mark.slow
def test_what_the_kept_memories_are_the_other_run_leaves_out(report):
    kept, without = report["SCAFFOLD"]["whole"], report["without memories"]["whole"]
    assert (kept["left out"], without["left out"]) == (0, len(kept["memories"]))
    assert without["memories"] == []
    assert {name: kept[name] for name in ("model", "metrics", "server")} == {
        name: without[name] for name in ("model", "metrics", "server")
    }
