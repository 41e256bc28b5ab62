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
def report(tmp_path_factory) -> list[dict[str, Any]]:
    scratch = tmp_path_factory.mktemp("killed")
    script = Path(__file__).with_name("killing.py")
    command = [sys.executable, "-W", "error", str(script), str(scratch), "0"]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads((scratch / "report.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", range(3), ids=["SCAFFOLD", "stages", "relaxed"])
def test_a_killed_run_resumes_to_the_same_bit(report, case):
    found = report[case]
    assert found["whole"]["unfinished"] == []
    assert found["whole"]["rounds timed"] == 5
    for end in found["ends"]:
        assert end == found["whole"]


@pytest.mark.slow
def test_the_kills_were_many_and_hit_every_change_of_the_disk(report):
    assert report[0]["changes"] > 30
    assert sum(case["kills"] for case in report) > report[0]["changes"] + 20
