"""Every command in README and docs/ runs, made small, in the order of its page, or has its reason not to."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from documented import PAGES, ROOT, blocks, commands, name
from typer.testing import CliRunner

from fedkeel.cli import app

sys.path.insert(0, str(ROOT / "docs"))
import not_run

_SETTINGS = ("data.clients=60", "cohort=2", "work.epochs=1", "engine=serial", "threads=1")
_CLIENTS = tuple(word for setting in _SETTINGS for word in ("--set", setting))
_SMALL = (*_CLIENTS, "--set", "rounds=1")
# what makes a command small: of an option given twice the last counts
MADE_SMALL: dict[str, tuple[str, ...]] = {
    "run": _SMALL,
    "compare": (*_SMALL, "--seeds", "1", "--measure", "final"),
    "sweep": (*_SMALL, "--seeds", "1", "--parallel", "1"),
    "tune": (*_SMALL, "--trials", "1", "--parallel", "1"),
    "study stability": (*_SMALL, "--pairs", "1", "--held-out", "1", "--samples", "50"),
    "study interaction": (*_SMALL, "--samples", "60", "--every", "1"),
    "study constants": _SMALL,
    "study robustness": (*_SMALL, "--set", "cohort=10", "--seeds", "1"),
    "costs": (*_CLIENTS, "--counted", "2"),
    "reproduce": ("--dry-run",),  # `make recipes` plays every recipe at its smallest scale
}
_REAL = ("cifar10", "cifar100", "mnist", "emnist", "shakespeare")
EVERY = [(name(page), line) for page in PAGES for line in commands(page)]


def reason(line: str) -> str | None:
    """Return why a line is not run here, or None."""
    if why := not_run.reason(line):
        return why
    files = [Path(word) for word in re.findall(r"\S+\.toml\b", line)]
    said = " ".join([line, *(file.read_text() for file in files if file.exists())])
    real = [one for one in _REAL if re.search(rf"\b{one}\b(?!\.)", said) and "reproduce" not in line]
    sets = Path(os.environ.get("FEDKEEL_DATA", "/nowhere"))
    missing = [one for one in real if not list(sets.glob(f"{one}*"))]
    return f"needs {', '.join(missing)} in FEDKEEL_DATA" if missing else None


def words_of(line: str) -> list[str]:
    """Return what the shell would hand to fedkeel: no remark, no pipe, no file for the output."""
    words = shlex.split(re.sub(r"\s+(#|\(what).*$", "", line), comments=True)
    ends = [words.index(sign) for sign in (">", "|", "&&") if sign in words]
    return words[1 : min(ends, default=None)]


def prepare(page: Path) -> None:
    """Make what a page's commands start from: its experiment files, a finished run and its weights."""
    (Path.cwd() / "docs" / "pictures").mkdir(parents=True)
    Path("experiment.toml").write_text("rounds = 1\n")
    for block in blocks(page):
        if block.language == "toml":
            for file in set(re.findall(r"\b(\w+\.toml)\b", page.read_text())):
                Path(file).write_text(block.text)
    reading = re.compile(r"fedkeel (?:show|resume|report|export|watch) ")
    named = re.findall(r"(?<!--out )(runs/[\w-]+)", "\n".join(filter(reading.match, commands(page))))
    made = set(re.findall(r"--out (runs/\w+)", "\n".join(commands(page))))
    for directory in {"runs/first", *named} - made:
        call(["run", *_SMALL, "--keep-client-states", "--out", directory])
    weights = next(Path("runs/first").glob("model.safetensors"))
    Path("weights.safetensors").write_bytes(weights.read_bytes())


def call(words: list[str]) -> Any:
    """Run fedkeel in this process."""
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_the_commands_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    lines = commands(page)
    if any(word in line for line in lines for word in (" runs/", "weights", ".toml", "fedkeel runs")):
        prepare(page)
    for line in lines:
        with subtests.test(msg=line):
            why = reason(line)
            if why is not None:
                pytest.skip(why)
            words = words_of(line)
            small = MADE_SMALL.get(" ".join(words[:2]), MADE_SMALL.get(words[0], ()))
            if words[0] == "resume" and "--rounds" in words:
                small = ("--rounds", "2")
            result = call([*words, *small])
            assert result.exit_code == 0, (line, result.stdout[-2000:], result.stderr[-2000:])


def test_what_is_not_run_is_there_and_has_its_reason() -> None:
    """A reason that no page needs any more is dropped; one for a page to come is allowed."""
    to_come = ("watch", "--track", "deploy", "ray", "--address", "python examples/", "fedkeel demo")
    for part in not_run.NOT_RUN:
        assert any(part in line for _, line in EVERY) or any(word in part for word in to_come), part


def test_the_page_says_below_a_block_why_a_command_is_not_run() -> None:
    page = "a\n\n```\nfedkeel methods\n```\n\n```\nfedkeel watch   # look\n```\n"
    told = not_run.with_reasons(page)
    assert told.startswith(page.rstrip())
    assert told.count("not-run") == 1
    assert "it serves a page until it is stopped" in told


def test_targets_and_programs_in_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page, line in EVERY:
        for target in re.findall(r"^make ([a-z]+)", line):
            assert target in targets, (page, line)
        for program in re.findall(r"python ((?:benchmarks|docs|tests|examples)/\S+\.py)", line):
            assert (ROOT / program).exists(), (page, line)
