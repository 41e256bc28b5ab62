"""What is exported are the runs' numbers and the page's tables."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest

from fedkeel.common.errors import ConfigError
from fedkeel.report import Trial
from fedkeel.report.export import (
    client_records,
    round_records,
    table_to_csv,
    to_csv,
    to_latex,
    to_markdown,
    write_parquet,
)
from fedkeel.report.page.document import Table
from fedkeel.report.page.runs import ReportedRun

ROWS = [
    {"round": 0, "cohort": [3, 1], "accuracy": 0.1 + 0.2, "loss": None},
    {
        "round": 1,
        "cohort": [2],
        "accuracy": 1 / 3,
        "loss": 2.5,
        "skipped": [{"client": 7, "reason": "sent NaN"}, {"client": 9, "reason": "late"}],
    },
]
RUNS = [
    ReportedRun(Trial('a "b", c', 4, ROWS), clients=[{"client": 0, "accuracy": 0.5}]),
    ReportedRun(Trial("d", 5, ROWS[:1])),
]
TABLE = Table(
    id="t",
    title="T",
    headings=("method", "final accuracy", "a_b"),
    rows=(("FedAvg | x", "88.4 ± 0.6 %", "2 & 3"), ("<b>", "—", "β ≤ 1")),
    bold=((1, 0), (1, 2)),
)


def test_csv_has_every_number_of_every_round() -> None:
    found = list(csv.DictReader(io.StringIO(to_csv(round_records(RUNS)))))
    assert [(row["label"], row["seed"], row["round"]) for row in found] == [
        ('a "b", c', "4", "0"),
        ('a "b", c', "4", "1"),
        ("d", "5", "0"),
    ]
    assert [float(row["accuracy"]) for row in found] == [0.1 + 0.2, 1 / 3, 0.1 + 0.2]
    assert found[0]["cohort"] == "3 1"
    assert found[0]["loss"] == found[0]["skipped"] == ""
    assert found[1]["skipped"] == "7 sent NaN; 9 late"


def test_clients_are_exported_with_their_run() -> None:
    assert client_records(RUNS) == [{"label": 'a "b", c', "seed": 4, "client": 0, "accuracy": 0.5}]


def test_parquet_has_the_same_records(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_parquet(round_records(RUNS), tmp_path / "x.parquet")
    assert parquet.read_table(tmp_path / "x.parquet").to_pylist() == round_records(RUNS)


def test_parquet_without_its_package_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r'needs pyarrow: pip install "fedkeel\[parquet\]"'):
        write_parquet(round_records(RUNS), tmp_path / "x.parquet")


def test_a_table_as_latex_markdown_and_csv() -> None:
    assert to_latex(TABLE).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"method & final accuracy & a\_b \\",
        r"\midrule",
        r"FedAvg | x & 88.4 $\pm$ 0.6 \% & 2 \& 3 \\",
        r"\textbf{\textless{}b\textgreater{}} & --- & \textbf{$\beta$ $\leq$ 1} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert to_markdown(TABLE).splitlines() == [
        "| method | final accuracy | a_b |",
        "| :--- | ---: | ---: |",
        r"| FedAvg \| x | 88.4 ± 0.6 % | 2 & 3 |",
        "| &lt;b&gt; | — | β ≤ 1 |",
    ]
    assert list(csv.reader(io.StringIO(table_to_csv(TABLE)))) == [
        list(TABLE.headings),
        *map(list, TABLE.rows),
    ]
