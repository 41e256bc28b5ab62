"""What the docs show runs as it stands there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import fedkeel as fk
from fedkeel.experiments.expression import parse_method

ROOT = Path(__file__).parents[1]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_method_in_contributing_is_the_example() -> None:
    (shown,) = blocks("CONTRIBUTING.md", "python")
    assert shown.strip() in (ROOT / "examples" / "own_method.py").read_text()


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_method.py"))["main"](rounds=2)
    printed = capsys.readouterr().out
    assert printed.count("accuracy") == 3
    assert "relaxed(FedNudge(beta=0.3)" in printed


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = blocks("README.md", "python")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(first.replace("rounds=100", "rounds=2"), "README", "exec"), names)
    exec(compile(second.replace("rounds=500", "rounds=2"), "README", "exec"), names)
    result = names["result"]
    assert isinstance(result, fk.Result)
    assert len(result.history) == 2
    assert (tmp_path / "runs" / "a" / "model.safetensors").exists()


def test_the_page_of_tasks_runs() -> None:
    names: dict[str, object] = {}
    for block in blocks("docs/tasks.md", "python"):
        exec(compile(block, "docs/tasks.md", "exec"), names)
    result = names["result"]
    assert isinstance(result, fk.Result)
    assert {"accuracy", "macro_f1", "top_3", "perplexity"} <= set(result.history[-1])


def test_the_methods_page_has_every_method_and_its_rule() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    for make in fk.METHODS:
        assert f"## {make.__name__}\n" in page
    (scaffold,) = re.findall(r"## SCAFFOLD\n(.*?)\n## ", page, re.DOTALL)
    assert "y ← y − η·(g + c − c_i + wd·y)" in scaffold


def test_method_expressions_in_the_readme_parse() -> None:
    for text in re.findall(r'(?:explain|--method) "(.*?)"', (ROOT / "README.md").read_text()):
        assert parse_method(text) is not None
