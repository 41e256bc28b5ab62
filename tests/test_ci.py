"""The workflows run the parts of `.ci/run`, also on the newest Python of torch; which tests are thorough."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from selecting import THOROUGH, is_thorough

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
RUN = ROOT / ".ci" / "run"


def jobs(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())["jobs"]


def parts() -> list[str]:
    (listed,) = re.findall(r"^PARTS=\((.*?)\)", RUN.read_text(), re.M)
    return listed.split()


def lines_of(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_a_test_is_thorough_from_a_number_of_seconds_on():
    slow = pytest.mark.slow
    assert is_thorough(slow(THOROUGH).mark)
    assert not is_thorough(slow.mark)  # not measured
    assert not is_thorough(slow(THOROUGH / 2).mark)
    assert not is_thorough(slow(10 * THOROUGH, thorough=False).mark)


def test_no_test_is_marked_thorough_by_hand():
    mark = "mark." + "thorough"
    assert not [path for path in (ROOT / "tests").rglob("*.py") if mark in path.read_text()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_yaml_whose_jobs_have_steps(path):
    assert jobs(path)
    for job in jobs(path).values():
        assert job["runs-on"]
        assert all("uses" in step or "run" in step for step in job["steps"])


def test_the_matrix_names_exactly_the_parts_of_the_script():
    job = jobs(ROOT / ".github" / "workflows" / "ci.yml")["parts"]
    assert job["strategy"]["matrix"] == {"part": parts()}
    assert lines_of(job) == [".ci/run ${{ matrix.part }}"]


def test_every_part_is_a_target_of_make():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    assert len(set(parts())) == len(parts()) >= 12
    assert set(parts()) <= set(targets)


def test_a_job_runs_the_tests_on_a_newer_python_than_the_others():
    found = jobs(ROOT / ".github" / "workflows" / "ci.yml")
    versions = {
        name: step["with"]["python-version"]
        for name, job in found.items()
        for step in job["steps"]
        if "setup-python" in step.get("uses", "")
    }
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert versions == {"parts": least.removeprefix(">="), "newest-python": "3.14"}
    assert lines_of(found["newest-python"]) == [".ci/run test"]


def test_a_part_that_does_not_exist_is_refused_before_anything_is_installed():
    done = subprocess.run([RUN, "wheel", "tests"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"there is no part 'tests'; known: {' '.join(parts())}" in done.stderr
    assert done.stdout == ""
