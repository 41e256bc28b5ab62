"""A probe declares its columns, and pages, tables and measures know them by that: also of a user's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import block, document_in
from problems import tiny_net
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli import app
from fedkeel.common.columns import DECLARED, PROBE_COLUMNS_FILE, KnownColumns, columns_in
from fedkeel.common.frozen import frozen
from fedkeel.common.jsonfiles import sealed
from fedkeel.core.oracle import Oracle
from fedkeel.experiments import expression
from fedkeel.probes import PROBES, HistoryColumn, Probe
from fedkeel.probes.__main__ import ON_PAGES, declared_columns
from fedkeel.probes.privacy import PrivacyBudget
from fedkeel.report import parse_measure
from fedkeel.web.live_page import live_document
from fedkeel.web.watching import Watch

SIZES = [3, 8, 5, 11]


@frozen
class Mine(Probe):
    """A probe of one's own, which declares all there is to declare."""

    every: int = 1

    columns = (
        HistoryColumn("mine", "the length of a round", "How far x moves.", log=True, better="less"),
        HistoryColumn("mine/share", "share of the length", percent=True, better="more", panel="drift"),
        HistoryColumn("mine/hidden", panel="none"),
    )

    def report(self, state: Any, seen: Any) -> Any:
        length = float((seen.x - seen.x_before).double().norm())
        return {"mine": length, "mine/share": 1 / (1 + length), "mine/hidden": 1.0}, state


def train(method: Any = None, seed: int = 0, **options: Any) -> fk.Result:
    problem = tiny_net(SIZES)
    work = fk.Work(epochs=1, batch_size=3, lr=0.1)
    given: dict[str, Any] = {"rounds": 3, "cohort": 3, "work": work, "probes": [Mine()], **options}
    return fk.train(problem.task, problem.federation, method or fk.FedAvg(), seed=seed, **given)


def call(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


def change_manifest(directory: Path, **parts: Any) -> None:
    """Write other parts into a manifest, None for those that it is to lack."""
    table = json.loads((directory / "manifest.json").read_text())
    kept = {key: part for key, part in {**table, **parts}.items() if part is not None and key != "sha256"}
    (directory / "manifest.json").write_text(json.dumps(sealed(kept)))


def test_the_file_without_pytorch_says_what_the_probes_declare() -> None:
    told = "run `python -m fedkeel.probes` and commit probe_columns.json"
    assert PROBE_COLUMNS_FILE.read_text() == declared_columns(), told
    assert {*PROBES} == {*ON_PAGES} - {PrivacyBudget}


@pytest.mark.parametrize("make", PROBES, ids=lambda make: make.__name__)
def test_every_probe_declares_what_it_reports(make: Any) -> None:
    layout = Oracle(tiny_net(SIZES).task, torch.device("cpu")).layout
    for name in make().names(layout):
        assert any(column.covers(name) for column in make().columns), name
        assert DECLARED.is_diagnostic(name)


def test_own_columns_are_on_a_page_that_knows_nothing_but_the_files(tmp_path: Path) -> None:
    train(run_dir=tmp_path / "run")
    call("report", str(tmp_path / "run"))
    document = document_in(tmp_path / "run" / "page.html")
    label = document.columns["mine"]
    assert (label.label, label.log, label.about) == ("the length of a round", True, "How far x moves.")
    assert document.columns["mine/share"].percent
    assert "mine" in block(document, "explorer").metrics
    assert block(document, "drift-curves").columns == ("global_update", "mine/share")
    assert "mine/hidden" not in document.runs[0].columns


def test_own_columns_are_on_the_live_page(tmp_path: Path) -> None:
    train(run_dir=tmp_path / "run")
    watch = Watch(tmp_path)
    watch.look()
    (group,) = watch.groups.values()
    document = live_document(watch, group)
    label = document.columns["mine"]
    assert (label.label, label.log) == ("the length of a round", True)
    assert "mine" in block(document, "explorer").metrics
    assert "mine/share" in block(document, "drift-curves").columns
    assert "mine/hidden" not in document.columns


def test_own_columns_are_known_in_a_notebook(tmp_path: Path) -> None:
    found = fk.compare(train, [fk.FedAvg(), fk.SCAFFOLD()], seeds=2, measure="final of mine")
    assert found.measure == "final of mine (min)"
    means = {line.label: line.score or 0.0 for line in found.table}
    assert found.verdict.winner == min(means, key=lambda label: means[label])
    assert found.target is not None  # of the accuracy, as mine is no score
    more = found.with_columns("score,final of mine/share")
    assert [line.others["final of mine/share (max)"][0] for line in more.table] == pytest.approx(
        [1 / (1 + mean) for mean in means.values()], rel=0.1
    )
    assert " %" in more.document.summary[0].rows[0][2]
    assert "selected by its final mine" in found.chosen.note
    asked = fk.compare(train, [fk.FedAvg()], seeds=1, columns="score,final of mine/share")
    assert asked.columns == ("score", "final of mine/share (max)")
    page = document_in(found.save_page(tmp_path / "page.html"))
    assert block(page, "explorer").metrics[0] == "mine"
    assert "on the test set" not in block(page, "scores").note


def test_a_comparison_of_files_takes_what_is_better_from_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known = expression.probe_names()
    monkeypatch.setattr(expression, "probe_names", lambda: {**known, "Mine": Mine})
    tiny = ("--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "8", "--rounds", "2")
    methods = ["--method", "fedavg", "--method", "scaffold", "--probe", "mine"]
    found = json.loads(
        call(
            "compare",
            *methods,
            *tiny,
            "--out",
            "c",
            "--json",
            "--parallel",
            "1",
            "--measure",
            "final of mine",
        )
    )
    assert found["verdict"]["measure"] == "final of mine (min)"
    assert "--measure 'final of mine (min)'" in found["command"]
    assert block(document_in(Path("c/page.html")), "explorer").metrics[0] == "mine"


def test_where_nobody_says_what_is_better_the_message_asks() -> None:
    with pytest.raises(fk.ConfigError, match=r"of 'norm' is better, as in 'final of norm \(max\)' or '"):
        parse_measure("final of norm")
    with pytest.raises(fk.ConfigError, match=r"say whether more or less of 'mine/hidden' is better"):
        fk.compare(train, [fk.FedAvg()], seeds=1, measure="final of mine/hidden")
    assert str(parse_measure("last:2 of loss")) == "last:2 of loss (min)"
    assert str(parse_measure("top of accuracy/gamma")) == "top of accuracy/gamma (max)"


def test_older_runs_have_what_fedkeel_declares(tmp_path: Path) -> None:
    train(run_dir=tmp_path / "run", probes=[fk.probes.Drift(), Mine()])
    change_manifest(tmp_path / "run", columns=None)
    call("report", str(tmp_path / "run"))
    document = document_in(tmp_path / "run" / "page.html")
    assert document.columns["drift"].label == "drift within a round"
    assert (document.columns["mine"].label, document.columns["mine"].log) == ("mine", False)
    assert "mine" in block(document, "explorer").metrics


def test_what_a_later_version_declares_is_skipped(tmp_path: Path) -> None:
    train(run_dir=tmp_path / "run")
    later = [
        {"name": "mine", "panel": "hologram"},
        {"about": "nameless"},
        {"name": "mine/share", "label": "s"},
    ]
    change_manifest(tmp_path / "run", columns=later)
    call("report", str(tmp_path / "run"))
    document = document_in(tmp_path / "run" / "page.html")
    assert document.columns["mine"].label == "mine"
    assert document.columns["mine/share"].label == "s"
    for manifest in ({"columns": 3}, {"columns": [3, None, "x", {}, {"name": 5}]}, {}):
        assert list(columns_in(manifest)) == []


def test_the_manifest_has_only_what_was_declared(tmp_path: Path) -> None:
    manifest: Mapping[str, Any] = train(run_dir=tmp_path / "run").manifest
    assert {"name": "mine/hidden", "panel": "none"} in manifest["columns"]
    assert KnownColumns.of([manifest]).describe("mine/share").better == "more"


def test_an_undeclared_column_is_drawn_among_the_curves() -> None:
    @frozen
    class Plain(Probe):
        every: int = 1

        def names(self, layout: Any) -> tuple[str, ...]:
            return ("plain_column",)

        def report(self, state: Any, seen: Any) -> Any:
            return {"plain_column": 1.0}, state

    columns = train(probes=[Plain()]).columns
    assert HistoryColumn("plain_column") in columns
    assert KnownColumns(columns).describe("plain_column").label == "plain column"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ((), r"declares no columns: give it columns = \("),
        (("mine",), r"declares 'mine': declare a column as"),
    ],
)
def test_a_probe_that_declares_nothing_or_something_else_is_refused(declared: Any, message: str) -> None:
    @frozen
    class Silent(Probe):
        every: int = 1

        columns = declared

        def report(self, state: Any, seen: Any) -> Any:
            return {}, state

    with pytest.raises(fk.ConfigError, match=message):
        train(probes=[Silent()])


def test_patterns_declare_several_columns() -> None:
    layers = HistoryColumn("layers/*", "the layer *", panel="layers")
    assert (layers.covers("layers/0.weight"), layers.covers("layer")) == (True, False)
    assert layers.of("layers/0.weight").label == "the layer 0.weight"
    known = KnownColumns([layers, HistoryColumn("layers/last", "the last one")])
    assert known.describe("layers/last").label == "the last one"
    assert known.describe("validation_accuracy").label == "validation accuracy"
    assert DECLARED.describe("layers/0.weight").label == "0.weight"


def test_declarations_are_read_without_pytorch() -> None:
    code = "import sys; from fedkeel.common.columns import DECLARED; assert DECLARED.describe('drift').log; "
    subprocess.run([sys.executable, "-c", f"{code}assert 'torch' not in sys.modules"], check=True)
