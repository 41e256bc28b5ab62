"""What the docs show runs as it stands there."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import fedkeel as fk
from fedkeel.experiments.expression import parse_method
from fedkeel.experiments.placement import ONE_BY_ONE
from fedkeel.papers.reproduce.carrying_out import carry_out_plan
from fedkeel.papers.reproduce.plan import plan

ROOT = Path(__file__).parents[1]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_method_in_contributing_is_the_example() -> None:
    shown, _, _ = blocks("CONTRIBUTING.md", "python")
    assert shown.strip() in (ROOT / "examples" / "own_method.py").read_text()


@pytest.mark.slow
def test_the_recipe_in_contributing_runs(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(blocks("CONTRIBUTING.md", "python")[1], names)
    recipe = names["TABLE_1"]
    outcome = carry_out_plan(plan(recipe, "smoke", tmp_path), placement=ONE_BY_ONE)
    assert {one.claim.text for one in outcome.claims} == {"SCAFFOLD is better than FedAvg"}
    assert all(cell.scores for cell in outcome.cells.values())


@pytest.mark.slow
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_method.py"))["main"](rounds=2)
    printed = capsys.readouterr().out
    assert printed.count("accuracy") == 3
    assert "relaxed(FedNudge(beta=0.3)" in printed


@pytest.mark.slow
def test_the_regression_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas", reason="needs the extra pandas")
    found = runpy.run_path(str(ROOT / "examples" / "regression.py"))["main"](rounds=15)
    assert min(found.values()) > 0.25
    assert capsys.readouterr().out.count("R²") == 2


@pytest.mark.slow
def test_the_example_with_two_inputs_learns(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(ROOT / "examples" / "two_inputs.py"))["main"](rounds=8)
    assert min(found.values()) > 0.3
    assert "upper: float32 of shape (32,)" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_with_files_reads_those_of_participants() -> None:
    found = runpy.run_path(str(ROOT / "examples" / "lazy_data.py"))["main"](rounds=8, clients=40)
    assert found["files"] < 40
    assert found["accuracy"] > 0.2


@pytest.mark.slow
def test_the_transformer_learns_and_lora_sends_less() -> None:
    pytest.importorskip("peft", reason="needs the extra examples")
    pytest.importorskip("transformers", reason="needs the extra examples")
    found = runpy.run_path(str(ROOT / "examples" / "lora.py"))["main"](rounds=20)
    assert found["whole"]["accuracy"] > 0.8
    assert found["LoRA"]["accuracy"] > 0.5
    assert found["LoRA"]["bytes"] < found["whole"]["bytes"] / 2


@pytest.mark.slow
def test_a_trimmed_mean_of_ones_own_withstands_broken_clients() -> None:
    found = runpy.run_path(str(ROOT / "examples" / "own_parts.py"))["main"](rounds=15)
    assert found["trimmed mean"] > found["mean"] + 0.1


NOTEBOOKS = {
    "notebook.ipynb": ("Federation: 50 clients", "EarlyStop"),
    "drift.ipynb": ("diversity", "The intervals hold", "c_i ← c_i − c"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_runs(name: str) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs the extra examples")
    nbformat = pytest.importorskip("nbformat", reason="needs the extra examples")
    notebook = nbformat.read(ROOT / "examples" / name, 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own
        nbclient.NotebookClient(notebook, timeout=300).execute()
    shown = [str(output) for cell in notebook.cells for output in cell.get("outputs", [])]
    for text in NOTEBOOKS[name]:
        assert any(text in output for output in shown), text


def test_no_example_is_without_a_test() -> None:
    tested = Path(__file__).read_text()
    for example in (ROOT / "examples").iterdir():
        if example.suffix in (".py", ".ipynb"):
            assert f'"{example.name}"' in tested, example.name


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = blocks("README.md", "python")
    monkeypatch.chdir(tmp_path)
    for text in (first.replace("rounds=100", "rounds=2"), second.replace("rounds=500", "rounds=2")):
        names: dict[str, object] = {}  # each by itself, as in two programs
        exec(compile(text, "README", "exec"), names)
        result = names["result"]
        assert isinstance(result, fk.Result)
        assert len(result.history) == 2
    assert (tmp_path / "runs" / "a" / "model.safetensors").exists()


@pytest.fixture(scope="module")
def python_page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All of docs/python.md, run block after block; what it leaves."""
    names: dict[str, Any] = {"__name__": "python_page"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("python"))
        for index, block in enumerate(blocks("docs/python.md", "python")):
            short = block.replace("rounds=40", "rounds=3")
            exec(compile(short, f"docs/python.md, block {index}", "exec", dont_inherit=True), names)
        names["page_written"] = Path("runs/page.html").exists()
    return names


@pytest.mark.slow
def test_the_python_page_runs(python_page: dict[str, Any]) -> None:
    assert len(python_page["partial"].history) == 2
    assert python_page["page_written"]
    assert len(python_page["comparison"].results) == 6
    assert python_page["sweep"].best in {0.0, 0.05, 0.1}
    assert python_page["loaded"].best.round >= 0
    assert python_page["result"].best.column == "validation_top3"


@pytest.mark.slow
def test_the_trimmed_mean_of_the_page_trims(python_page: dict[str, Any]) -> None:
    class Up(NamedTuple):
        delta: torch.Tensor

    reducer = python_page["TrimmedMean"](0.2)
    sent = torch.tensor([[1.0], [2.0], [3.0], [4.0], [1e9]])
    parts = None
    for upload in sent:
        parts = reducer.add(parts, 1.0, Up(upload))
    assert reducer.merge([parts]).delta.tolist() == [3.0]
    assert repr(reducer) == "TrimmedMean(share=0.2)"


@pytest.mark.slow
def test_the_probe_of_the_page_is_one_where_all_clients_agree(python_page: dict[str, Any]) -> None:
    x, y = python_page["federation"].samples(0)
    alike = fk.Federation.from_arrays([(x, y)] * 4, transform=python_page["federation"].transform)
    work = fk.Work(epochs=1, lr=0.1)
    options: dict[str, Any] = {"rounds": 2, "cohort": 4, "work": work, "probes": [python_page["Agreement"]()]}
    for engine in ("serial", "stacked-uncompiled"):
        history = fk.train(
            python_page["task"], alike, fk.FedAvg(), execution=fk.Execution(engine), **options
        ).history
        assert [row["agreement"] for row in history] == pytest.approx([1, 1], abs=1e-3)


def test_what_the_page_names_is_exported() -> None:
    for name in ("Reducer", "StackReducer", "Probe", "Metric", "Callback", "EarlyStop", "KeepBest"):
        assert name in fk.__all__


def test_the_page_of_tasks_runs() -> None:
    names: dict[str, object] = {}
    for block in blocks("docs/tasks.md", "python"):
        exec(compile(block, "docs/tasks.md", "exec"), names)
    result = names["result"]
    assert isinstance(result, fk.Result)
    assert {"accuracy", "macro_f1", "top_3", "perplexity"} <= set(result.history[-1])


def test_every_method_has_a_page_with_its_rule() -> None:
    overview = (ROOT / "docs" / "methods.md").read_text()
    for make in fk.METHODS:
        page = f"methods/{make.__name__.lower()}.md"
        assert f"[{make.__name__}]({page})" in overview
        assert (ROOT / "docs" / page).read_text().startswith(f"# {make.__name__}\n")
    scaffold = (ROOT / "docs" / "methods" / "scaffold.md").read_text()
    assert "y ← y − η·(g + c − c_i + wd·y)" in scaffold
    assert "Karimireddy" in scaffold


def test_method_expressions_in_the_readme_parse() -> None:
    for text in re.findall(r'(?:explain|--method) "(.*?)"', (ROOT / "README.md").read_text()):
        assert parse_method(text) is not None
