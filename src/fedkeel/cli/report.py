"""`fedkeel report` and `fedkeel export`: what is kept of runs as a page, or for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedkeel.cli.paths import refuse_directory
from fedkeel.common.errors import ConfigError, StorageError
from fedkeel.common.files import storage_errors, write_durably
from fedkeel.common.progress import console

if TYPE_CHECKING:
    from fedkeel.report.page.document import Document, Table

_REPORT = """[bold]Examples[/]

fedkeel report runs/20260101-120000-compare

fedkeel report runs/first runs/second runs/stability --out both.html

fedkeel report runs/reproduce/fedsagd-table2-cpu"""
_EXPORT = """[bold]Examples[/]

fedkeel export runs/mine > rounds.csv

fedkeel export runs/compare --out table.tex

fedkeel export runs/compare --table clients --out clients.csv

fedkeel export runs/first runs/second --out rounds.parquet"""

Directories = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR…", help="Runs, comparisons, sweeps, studies, recipes, or what has runs below."
    ),
]
Format = Literal["csv", "parquet", "latex", "markdown"]
Which = Literal["rounds", "scores", "clients"]
_FORMATS: dict[str, Format] = {".tex": "latex", ".md": "markdown", ".parquet": "parquet"}


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog=_REPORT)(report)
    app.command(epilog=_EXPORT)(export)


def report(
    directories: Directories,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to write it; by default page.html in DIR, of several report.html here.",
        ),
    ] = None,
) -> None:
    """Write the page of runs, comparisons, sweeps, studies or recipes: one file that needs no network."""
    from fedkeel.directories.pages import document_of  # noqa: PLC0415  pydantic takes its time
    from fedkeel.report.page.rendering import write_page  # noqa: PLC0415  pydantic takes its time

    refuse_directory(out, "--out")
    alone = directories[0] / "page.html" if len(directories) == 1 else Path("report.html")
    page = write_page(document_of(directories), out or alone)
    console().print(f"Page: {page}", markup=False, soft_wrap=True)


def export(
    directories: Directories,
    format: Annotated[
        Format | None,
        typer.Option(help="Of what kind the file is; by default what the name of --out ends with, else csv."),
    ] = None,
    table: Annotated[
        Which | None,
        typer.Option(
            help="Every round, the scores, or clients; by default rounds. In LaTeX and Markdown, and of what "
            "keeps no rounds, scores."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it; by default it is printed.")
    ] = None,
) -> None:
    """Write the numbers of runs for other programs: CSV, Parquet, or tables in LaTeX and Markdown."""
    from fedkeel.directories.pages import document_of, runs_of  # noqa: PLC0415  pydantic takes its time
    from fedkeel.report import export as write  # noqa: PLC0415  pydantic takes its time

    if format is None:
        format = "csv" if out is None else _FORMATS.get(out.suffix, "csv")
    if format == "parquet" and out is None:
        raise ConfigError("--format parquet: a file that cannot be printed: name it with --out")
    written = format in ("latex", "markdown")
    runs = [] if written or table == "scores" else runs_of(directories)
    which = table or ("rounds" if runs else "scores")
    if written and which != "scores":
        raise ConfigError(f"--table {which} --format {format}: only scores are a table for papers: take csv")
    if which == "scores":
        if format == "parquet":
            raise ConfigError(
                "--table scores --format parquet: its cells are texts: take csv, latex or markdown"
            )
        scores = _scores(document_of(directories), directories)
        make = {"csv": write.table_to_csv, "latex": write.to_latex, "markdown": write.to_markdown}
        text = make[format](scores)
    else:
        records = write.round_records(runs) if which == "rounds" else write.client_records(runs)
        if not records:
            raise StorageError(f"{directories[0]}: {_NOTHING[which]}")
        if format == "parquet" and out is not None:
            write.write_parquet(records, out)
            return
        text = write.to_csv(records)
    if out is None:
        sys.stdout.write(text)
        return
    with storage_errors(out):
        write_durably(out, text.encode())


_NOTHING = {
    "rounds": "no run with a finished round here: `fedkeel runs` lists runs",
    "clients": "no client was evaluated by itself: give clients test sets, as data.client_tests=0.2",
}


def _scores(document: Document, directories: list[Path]) -> Table:
    if document.scores is None:
        raise StorageError(f"{directories[0]}: no table of scores here: `fedkeel runs` lists runs")
    return document.scores
