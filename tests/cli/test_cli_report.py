"""`fedkeel report` and `fedkeel export`: any directory as a page, and its numbers for other programs."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pages import block, document_in

import fedkeel as fk

TINY = ("--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "8", "--rounds", "3")
COMPARE = ("compare", "--method", "fedavg", "--method", "scaffold", *TINY, "--seeds", "2")


def test_a_page_that_is_written_again_is_the_same(fedkeel: Callable) -> None:
    fedkeel(*COMPARE, "--target", "0.05", "--out", "c")
    first = Path("c/page.html").read_text()
    assert fedkeel("report", "c").stdout == "Page: c/page.html\n"
    assert document_in(first) == document_in(Path("c/page.html"))
    document = document_in(first)
    rows = [json.loads(line) for line in Path("c/scaffold/seed-1/metrics.jsonl").read_text().splitlines()]
    shown = next(run for run in document.runs if run.directory == "c/scaffold/seed-1")
    assert list(shown.columns["loss"].values) == pytest.approx([row["loss"] for row in rows], rel=1e-5)
    assert document.facts[:3] == (("data", "digits"), ("clients", "4"), ("cohort", "2 per round"))


@pytest.mark.slow
def test_runs_of_all_kinds_stand_on_one_page(fedkeel: Callable) -> None:
    fedkeel(*COMPARE, "--out", "c")
    fedkeel("run", *TINY, "--lr", "0.5", "--out", "a")
    fedkeel(
        "sweep", *TINY, "--over", "cohort", "--values", "1,2", "--seeds", "1", "--parallel", "1", "--out", "s"
    )
    assert fedkeel("report", "a", "c/scaffold", "s", "--out", "all.html").stdout == "Page: all.html\n"
    document = document_in(Path("all.html"))
    named = {run.method for run in document.runs}
    assert named == {"FedAvg", "SCAFFOLD", "cohort=1", "cohort=2"}
    assert set(block(document, "differences").headings) == {"run", "cohort", "work.lr", "seeds"}
    fedkeel("report", "a", "c")
    both = {run.method for run in document_in(Path("report.html")).runs}
    assert both == {"FedAvg [work.lr=0.5]", "FedAvg [work.lr=0.1]", "SCAFFOLD"}


def test_the_label_picture_of_a_run_is_its_split(fedkeel: Callable) -> None:
    fedkeel("run", *TINY, "--out", "a")
    fedkeel("report", "a")
    labels = block(document_in(Path("a/page.html")), "labels")
    told = json.loads(fedkeel("split", "--clients", "4", "--json").stdout)["counts"]
    assert [list(row) for row in labels.counts] == told


def test_a_run_with_many_clients_keeps_the_labels_of_a_hundred(tmp_path: Path) -> None:
    federation = fk.data.load("digits").split(fk.IID(), clients=130, seed=0)
    result = fk.train(
        fk.Task(fk.models.mlp),
        federation,
        fk.FedAvg(),
        rounds=1,
        cohort=1,
        work=fk.Work(steps=1),
        execution=fk.Execution("serial"),
        run_dir=tmp_path,
    )
    kept = result.manifest["label_counts"]
    assert len(kept["clients"]) == 100
    assert [int(count) for count in kept["clients"][7].split()] == federation.samples(7)[1].bincount(
        minlength=10
    ).tolist()
    assert "<img" in result._repr_html_()
    assert "data:image/svg+xml;base64," in result._repr_html_()


def test_the_export_is_the_history(fedkeel: Callable) -> None:
    fedkeel(*COMPARE, "--out", "c")
    rows = list(csv.DictReader(io.StringIO(fedkeel("export", "c").stdout)))
    assert len(rows) == 2 * 2 * 3
    kept = [json.loads(line) for line in Path("c/fedavg/seed-1/metrics.jsonl").read_text().splitlines()]
    found = [row for row in rows if (row["label"], row["seed"]) == ("FedAvg", "1")]
    assert [float(row["loss"]) for row in found] == [row["loss"] for row in kept]
    page = block(document_in(Path("c/page.html")), "scores")
    latex = fedkeel("export", "c", "--format", "latex").stdout
    assert latex.count(r"\\") == 1 + len(page.rows)
    fedkeel("export", "c", "--table", "scores", "--out", "scores.csv")
    assert list(csv.reader(io.StringIO(Path("scores.csv").read_text()))) == [
        list(page.headings),
        *map(list, page.rows),
    ]
    assert fedkeel("export", "c", "--format", "markdown").stdout.count("\n") == 2 + len(page.rows)
    pytest.importorskip("pyarrow")
    fedkeel("export", "c", "--format", "parquet", "--out", "c.parquet")
    assert Path("c.parquet").stat().st_size > 1000


def test_plotly_is_imported_for_a_page_alone() -> None:
    code = (
        "import sys, fedkeel, fedkeel.cli, fedkeel.cli.report, fedkeel.directories.pages\n"
        "from fedkeel.cli.app import app\n"
        "assert 'plotly' not in sys.modules and 'pyarrow' not in sys.modules\n"
        "from fedkeel.report.page.document import Document\n"
        "from fedkeel.report.page.rendering import render\n"
        "assert 'torch' not in sys.modules\n"
        "render(Document(title='x'))\n"
        "assert 'plotly' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
