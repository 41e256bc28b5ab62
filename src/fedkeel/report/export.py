"""Runs and tables for other programs: CSV, Parquet, LaTeX and Markdown. The page's script writes the same."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkeel.common.errors import ConfigError
from fedkeel.common.files import storage_errors
from fedkeel.report.page.document import Table
from fedkeel.report.page.runs import ReportedRun, state_of

Record = dict[str, Any]

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "…": r"\ldots{}",
    "—": "---",
    "–": "--",
    **{sign: f"\\{sign}" for sign in "{}&%$#_"},
    **{
        sign: f"${name}$"
        for sign, name in {
            "±": r"\pm",
            "−": "-",
            "×": r"\times",
            "≤": r"\leq",
            "≥": r"\geq",
            "β": r"\beta",
            "η": r"\eta",
            "λ": r"\lambda",
            "μ": r"\mu",
            "α": r"\alpha",
            "γ": r"\gamma",
            "ρ": r"\rho",
            "‖": r"\|",
            "²": "^2",
            "∩": r"\cap",
        }.items()
    },
}


def round_records(runs: Sequence[ReportedRun]) -> list[Record]:
    """Return every round of every run with all its columns; lists, as the cohort, as text with spaces."""
    columns = dict.fromkeys(name for run in runs for row in run.trial.rows for name in row)
    return [
        {
            "label": run.trial.label,
            "seed": run.trial.seed,
            "state": state_of(run.trial),
            **{name: _plain(row.get(name)) for name in columns},
        }
        for run in runs
        for row in run.trial.rows
    ]


def client_records(runs: Sequence[ReportedRun]) -> list[Record]:
    """Return every client of every run whose last model was evaluated client by client."""
    return [{"label": run.trial.label, "seed": run.trial.seed, **row} for run in runs for row in run.clients]


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records as CSV with a line of headings."""
    return _csv([list(records[0]), *(list(record.values()) for record in records)]) if records else ""


def table_to_csv(table: Table) -> str:
    """Return a table's texts as CSV."""
    return _csv([table.headings, *table.rows])


def to_markdown(table: Table) -> str:
    """Return a table in GitHub's Markdown."""
    rule = [":---" if index in table.left else "---:" for index in range(len(table.headings))]
    lines = [map(_in_markdown, table.headings), rule, *(map(_in_markdown, row) for row in table.rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def to_latex(table: Table) -> str:
    r"""Return a table for LaTeX with the package booktabs."""
    columns = "".join("l" if index in table.left else "r" for index in range(len(table.headings)))
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *_latex_lines(table), r"\end{tabular}", ""])


def write_parquet(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write records as a Parquet file."""
    try:
        import pyarrow  # noqa: PLC0415  an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise ConfigError('--format parquet needs pyarrow: pip install "fedkeel[parquet]"') from None
    with storage_errors(path):
        parquet.write_table(pyarrow.Table.from_pylist([dict(record) for record in records]), path)


def _plain(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    if value and isinstance(value[0], Mapping):  # who was left out, and why
        return "; ".join(" ".join(map(str, one.values())) for one in value)
    return " ".join(map(str, value))


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _in_markdown(cell: str) -> str:
    escaped = cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"\s+", " ", escaped)


def _latex_lines(table: Table) -> Iterator[str]:
    yield r"\toprule"
    yield _latex_row(table.headings)
    yield r"\midrule"
    for index, row in enumerate(table.rows):
        yield _latex_row(row, bold={column for line, column in table.bold if line == index})
    yield r"\bottomrule"


def _latex_row(cells: Sequence[str], *, bold: Collection[int] = ()) -> str:
    escaped = ["".join(_LATEX.get(sign, sign) for sign in cell) for cell in cells]
    shown = (rf"\textbf{{{cell}}}" if index in bold else cell for index, cell in enumerate(escaped))
    return " & ".join(shown) + r" \\"
