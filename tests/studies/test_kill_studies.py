"""A study that is killed at any instant and started again ends as if nothing had happened, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    scratch = tmp_path_factory.mktemp("killed")
    script = Path(__file__).with_name("killing_studies.py")
    command = [sys.executable, "-W", "error", str(script), str(scratch)]
    there = os.pathsep.join([str(script.parents[1]), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": there})
    found: dict[str, Any] = json.loads((scratch / "report.json").read_text())
    return found


@pytest.mark.slow(39)
@pytest.mark.parametrize("name", ["interaction", "stability", "constants"])
def test_a_killed_study_goes_on_to_the_same_bit(report: dict[str, Any], name: str) -> None:
    found = report[name]
    assert found["kills"] >= found["changes"] + 6
    assert all(found["same"])
    assert all(found["once"])  # no finished part was made again
    assert found["again"]
