"""What docs/theory.md shows is what comes out."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedkeel.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()


def test_the_python_on_the_page_runs():
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict = {}
    exec(compile(block, "theory.md", "exec"), names)
    assert names["bound"].holds
    assert names["bound"].guaranteed == names["bound"].value


def test_the_table_of_bounds_is_the_commands(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (shown,) = re.findall(r"```\n(fedinit-1: .*?)\n```", PAGE, re.DOTALL)
    told = CliRunner().invoke(app, ["bounds", "fedinit-1", "--over", "beta", "--constant", "C=10"]).stdout
    assert [line.rstrip() for line in told.strip().splitlines()] == shown.splitlines()


@pytest.mark.parametrize(
    "name", ["Theorem 4", "Remarks 3 and 5", "Remark 8", "Remark 13", "Remark 18", "R_β", "L²", "poster"]
)
def test_the_list_of_repairs_has_every_statement_that_does_not_follow(name):
    listed = PAGE.partition("## What was repaired")[2].partition("\n## ")[0]
    rows = [line for line in listed.splitlines() if line.startswith("| ")]
    assert any(name in row for row in rows), name


def test_every_command_on_the_page_names_its_options():
    for name in ("advise", "bounds"):
        known = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).stdout
        for line in re.findall(rf"^fedkeel {name} (.*)$", PAGE, re.MULTILINE):
            assert all(option in known for option in re.findall(r"--[a-z-]+", line)), line
