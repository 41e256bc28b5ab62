"""The papers behind fedkeel: one table (references.toml) for docstrings, `explain`, `cite` and the docs."""

from __future__ import annotations

import inspect
import re
import tomllib
import unicodedata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

KINDS = ("methods", "plug-ins", "probes", "reducers", "studies", "bounds", "theory")
OWN = "fedkeel"  # the key of what no paper proposed


class Paper(NamedTuple):
    """A paper. What is not known for certain is empty."""

    key: str
    authors: tuple[str, ...]
    title: str
    year: int | None = None
    booktitle: str = ""
    journal: str = ""
    arxiv: str = ""
    url: str = ""
    note: str = ""
    label: str = ""

    @property
    def link(self) -> str:
        """Where the paper is, or nothing."""
        return self.url or (f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else "")

    @property
    def short(self) -> str:
        """As a text names it: McMahan et al. 2017."""
        if self.label:
            return self.label
        last = [name.split()[-1] for name in self.authors]
        who = last[0] if len(last) == 1 else " and ".join(last) if len(last) == 2 else f"{last[0]} et al."
        return f"{who if last[-1] != 'others' else f'{last[0]} et al.'} {self.year or ''}".strip()

    def as_dict(self) -> dict[str, Any]:
        """Return what is known, for JSON."""
        return {name: value for name, value in {**self._asdict(), "link": self.link}.items() if value}

    def __str__(self) -> str:
        who = ", ".join(self.authors).replace(", others", " and others") or "Anonymous"
        where = self.booktitle or self.journal or (f"arXiv:{self.arxiv}" if self.arxiv else "")
        parts = [who, f"“{self.title}”", where, str(self.year or ""), "" if where else self.note, self.link]
        return ". ".join(part for part in parts if part)

    def bibtex(self) -> str:
        """Return the entry for BibTeX."""
        kind = "inproceedings" if self.booktitle else "article" if self.journal else "misc"
        fields = {
            "author": " and ".join(f"{{{one}}}" if one.startswith("The ") else one for one in self.authors)
            or "{Anonymous}",
            "title": f"{{{self.title}}}",
            "year": str(self.year or ""),
            "booktitle": self.booktitle,
            "journal": self.journal,
            "eprint": self.arxiv,
            "archiveprefix": "arXiv" if self.arxiv else "",
            "url": self.link,
            "note": self.note,
        }
        lines = [f"  {name} = {{{_latex(text)}}}," for name, text in fields.items() if text]
        return "\n".join([f"@{kind}{{{self.key},", *lines, "}"])


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("references.toml").read_text(encoding="utf-8"))


@cache
def references() -> Mapping[str, Paper]:
    """Return all papers by their keys."""
    papers = _table()["papers"].items()
    return {key: Paper(key, **{**paper, "authors": tuple(paper["authors"])}) for key, paper in papers}


def cited(name: str, kind: str | None = None) -> tuple[Paper, ...]:
    """Return the papers that a method, plug-in, probe, study or bound comes from; none where it has no entry.

    Case does not matter; a bound goes by how its name begins, `fedinit-1` by `fedinit`.
    """
    for one in KINDS if kind is None else (kind,):
        known = {entry.lower(): keys for entry, keys in _table()[one].items()}
        asked = name.lower().partition("-")[0] if one == "bounds" else name.lower()
        if asked in known:
            return tuple(references()[key] for key in known[asked])
    return ()


def names(kind: str) -> tuple[str, ...]:
    """Return what has an entry: `names("probes")`."""
    return tuple(_table()[kind])


def add_references(kind: str, *things: Any) -> None:
    """Append to the docstrings of these classes, functions and modules the papers they come from."""
    for thing in things:
        papers = cited(thing.__name__.rpartition(".")[2], kind)
        if papers and thing.__doc__:  # `python -OO` has none
            lines = "\n".join(f"- {paper}" for paper in papers)
            title = "Reference" if len(papers) == 1 else "References"
            thing.__doc__ = f"{inspect.cleandoc(thing.__doc__)}\n\n{title}:\n\n{lines}"


def _latex(text: str) -> str:
    """Return the text in ASCII as BibTeX takes it: ü as {\\"u}."""
    marks = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030c": "v "}
    found = unicodedata.normalize("NFD", text)
    return re.sub(
        f"(.)([{''.join(marks)}])", lambda pair: f"{{\\{marks[pair[2]].strip()}{{{pair[1]}}}}}", found
    )
