"""The examples in every command's help: each parses, and the quick ones run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from commands import COMMANDS, command_of
from selecting import one_in

from fedkeel.experiments.experiment import Experiment

ROOT = Path(__file__).parents[2]
SETTINGS = ("data.clients=10", "cohort=2", "work.epochs=1", "engine=serial")
SMALL = [*(word for setting in SETTINGS for word in ("--set", setting)), "--rounds", "1"]
AS_THEY_STAND = ("methods", "explain", "bounds", "runs", "settings", "split")
MADE_SMALL = {"run": SMALL, "compare": [*SMALL, "--seeds", "1"]}  # of an option given twice the last counts
ABSENT = ("cifar10", "advice.json", "/data/", "head:6379", "ray")  # what an example has and a test has not


def examples(command: Any) -> list[str]:
    return [line for line in (command.epilog or "").splitlines() if line.startswith("fedkeel ")]


def arguments(line: str) -> list[str]:
    """Return what the shell would hand to fedkeel: no pipe, no file for the output, no remark in brackets."""
    words = shlex.split(re.sub(r"\s{2,}\(.*\)$", "", line))
    ends = [words.index(sign) for sign in (">", "|") if sign in words]
    return words[1 : min(ends, default=None)]


EVERY = [(path, line) for path, command in COMMANDS.items() for line in examples(command)]
QUICK = [
    (path, line)
    for path, line in EVERY
    if path[0] in (*AS_THEY_STAND, *MADE_SMALL) and not any(name in line for name in ABSENT)
]


def documented() -> list[str]:
    """Return the commands in the blocks of README and docs, each on one line, without remarks."""
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted((docs / "methods").glob("*.md"))]
    blocks = [block for page in pages for block in page.read_text().split("\n```")[1::2]]
    text = "\n".join(blocks).replace("\\\n", " ")
    lines = re.findall(r"^(?:[A-Z_]+=\S+ )?(fedkeel [a-z].*?)(?:\s+#.*)?$", text, re.M)
    return [" ".join(line.split()) for line in lines]


DOCUMENTED = documented()


@pytest.mark.parametrize("line", DOCUMENTED)
def test_every_line_in_the_docs_parses(line: str) -> None:
    words = arguments(line)
    path = command_of(words)
    assert not COMMANDS[path].make_context(" ".join(path), words[len(path) :]).args


def test_the_docs_show_every_command_that_trains() -> None:
    shown = {arguments(line)[0] for line in DOCUMENTED}
    assert {"run", "compare", "sweep", "tune", "study", "costs", "advise", "split", "bounds"} <= shown


@pytest.mark.slow
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_examples_of_itself(path: tuple[str, ...], fedkeel: Any) -> None:
    shown = examples(COMMANDS[path])
    assert shown
    text = " ".join(fedkeel(*path, "--help").stdout.split())
    for line in shown:
        assert arguments(line)[: len(path)] == list(path)
        assert " ".join(line.split()) in text


@pytest.mark.parametrize(("path", "line"), EVERY, ids=[line for _, line in EVERY])
def test_every_example_parses(path: tuple[str, ...], line: str) -> None:
    context = COMMANDS[path].make_context(" ".join(path), arguments(line)[len(path) :])
    assert not context.args


@pytest.mark.parametrize(("path", "line"), one_in(3, QUICK), ids=[line for _, line in QUICK])
def test_quick_examples_run(path: tuple[str, ...], line: str, fedkeel: Any) -> None:
    Path("experiment.toml").write_text(Experiment().to_toml())
    Path("runs").mkdir()
    assert fedkeel(*arguments(line), *MADE_SMALL.get(path[0], ())).stdout
