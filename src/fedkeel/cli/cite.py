"""`fedkeel cite`: the papers behind methods, plug-ins, probes, studies and bounds, for BibTeX."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from fedkeel.cli import options as opt
from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.common.progress import console, plain_table
from fedkeel.common.references import KINDS, Paper, cited, names, references

_EXAMPLES = (
    "[bold]Examples[/]\n\nfedkeel cite                                  (what there is)\n\n"
    "fedkeel cite scaffold feddyn > papers.bib\n\n"
    'fedkeel cite "relaxed(fedcm(0.1), beta=0.1)" divergence fedinit-1'
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES)(cite)


def cite(
    asked: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...", help="Methods or expressions, probes, studies, bounds; none lists them."
        ),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Print the papers of methods, probes, studies and bounds for BibTeX; without a name, list them."""
    if not asked:
        _list(as_json=as_json)
        return
    papers = list(dict.fromkeys(paper for text in asked for paper in _papers(text)))
    if as_json:
        print(json.dumps([paper.as_dict() for paper in papers], ensure_ascii=False, indent=2))
    else:
        print("\n\n".join(paper.bibtex() for paper in papers))


def _papers(text: str) -> list[Paper]:
    """Return the papers of a name, or of all the names in an expression."""
    if text in references():
        return [references()[text]]
    if "(" not in text:
        return _known(text)
    parts = re.findall(r"[A-Za-z]\w*(?!\w|\s*=)", text)  # a name before = is an argument's
    if not parts:
        raise ConfigError(f"cite: {text!r} names no method: `fedkeel cite` lists what there is")
    return [paper for name in parts if name not in ("True", "False", "None") for paper in _known(name)]


def _known(name: str) -> list[Paper]:
    found = cited(name)
    if not found:
        known = [one for kind in KINDS for one in names(kind)] + list(references())
        raise ConfigError(f"cite: {name!r}: {did_you_mean(name, known)}\nlist them: fedkeel cite")
    return list(found)


def _list(*, as_json: bool) -> None:
    if as_json:
        listed = {kind: {one: [p.key for p in cited(one, kind)] for one in names(kind)} for kind in KINDS}
        papers = {key: paper.as_dict() for key, paper in references().items()}
        print(json.dumps({"papers": papers, **listed}, ensure_ascii=False, indent=2))
        return
    rows = [
        (kind if index == 0 else "", f"{one}-…" if kind == "bounds" else one, _shorts(one, kind))
        for kind in KINDS
        for index, one in enumerate(names(kind))
    ]
    table = plain_table(("", "name", "papers"), rows)
    for column in table.columns:
        column.justify = "left"
    screen = console()
    screen.print(table)
    screen.print("\nBibTeX: fedkeel cite NAME. What says fedkeel is our own.", markup=False)


def _shorts(name: str, kind: str) -> str:
    return "; ".join(f"{paper.short} [{paper.key}]" for paper in cited(name, kind))
