"""A new kind of study is a module and a row: command, page, JSON, resume and processes come by themselves.

The module is the template of CONTRIBUTING.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import sys
from fedkeel.directories.kinds import STUDIES
STUDIES["rise study"] = "toy:RiseStudy"
if __name__ == "__main__":
    from fedkeel.cli.app import main
    main()
"""


def template() -> str:
    """Return the module that CONTRIBUTING shows."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    return text.partition("## Add a study")[2].partition("```python\n")[2].partition("```")[0]


TINY = (
    "--clients",
    "6",
    "--cohort",
    "3",
    "--rounds",
    "2",
    "--steps",
    "1",
    "--batch-size",
    "8",
    "--engine",
    "serial",
)


@pytest.mark.slow(20)
def test_a_study_of_two_files_can_do_what_all_can(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(template())
    (tmp_path / "start.py").write_text(START)

    def fedkeel(*words: str) -> str:
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "start.py", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "What the rise is multiplied by." in fedkeel("study", "rise", "--help")
    line = ("study", "rise", *TINY, "--factor", "2", "--seeds", "2", "--parallel", "2", "--out", "t")
    printed = fedkeel(*line)
    assert "rise" in printed
    assert "Page: t/page.html" in printed
    numbers = json.loads(fedkeel("show", "t", "--json"))
    assert len(numbers["rises"]) == 2
    assert json.loads(fedkeel("resume", "t", "--json")) == numbers
    assert (
        json.loads(fedkeel(*line[:-4], "--parallel", "1", "--out", "one", "--json"))["rises"]
        == numbers["rises"]
    )
    assert fedkeel("export", "t", "--format", "markdown").startswith("| seed | rise |")
    fedkeel("report", "t", "--out", "page.html")
    assert "The largest rise of the test loss" in (tmp_path / "page.html").read_text()
