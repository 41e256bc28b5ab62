"""One table of papers feeds docstrings, `explain`, `cite` and the docs, and nothing is missing from it."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys

import pytest

import fedkeel as fk
from fedkeel.common.references import KINDS, OWN, add_references, cited, names, references
from fedkeel.directories.kinds import STUDIES, study_class
from fedkeel.explain import explain_method
from fedkeel.methods import METHODS
from fedkeel.probes import PROBES
from fedkeel.theory.catalogue import CATALOGUE

PLUG_INS = (fk.relaxed, fk.sharp, fk.stages, fk.private, fk.Decayed, fk.Adaptive, fk.SwitchingRule)


def studies() -> list[str]:
    """Return the names of the commands that measure something."""
    return [study_class(kind).command.rpartition(" ")[2] for kind in STUDIES if kind.endswith("study")]


@pytest.mark.parametrize("make", METHODS, ids=lambda make: make.__name__)
def test_a_method_opens_with_its_paper(make) -> None:
    first, *_ = papers = cited(make.__name__, "methods")
    lines = inspect.getdoc(make).splitlines()
    assert lines[0].startswith(f"{first.short}: ")
    for paper in papers:
        assert f"- {paper}" in lines


@pytest.mark.parametrize(
    ("kind", "things"),
    [("methods", METHODS), ("plug-ins", PLUG_INS), ("probes", PROBES)],
    ids=["methods", "plug-ins", "probes"],
)
def test_every_method_plug_in_and_probe_ends_with_its_papers(kind: str, things) -> None:
    for thing in things:
        papers = cited(thing.__name__, kind)
        assert papers, thing
        assert inspect.getdoc(thing).endswith(f"- {papers[-1]}")
    known = {thing.__name__ for thing in things} | {"Sharpened"}
    assert set(names(kind)) <= known


def test_reducers_that_have_papers_exist() -> None:
    assert all(issubclass(getattr(fk, name), fk.StackReducer | fk.Reducer) for name in names("reducers"))


def test_every_study_names_its_papers() -> None:
    assert set(names("studies")) == set(studies())
    for name in studies():
        module = importlib.import_module(f"fedkeel.studies.{name}")
        for paper in cited(name, "studies"):
            assert f"- {paper}" in module.__doc__


def test_every_bound_has_a_paper_and_every_entry_a_bound() -> None:
    begins = {name.partition("-")[0] for name in CATALOGUE}
    assert begins == set(names("bounds"))
    assert all(cited(name, "bounds") for name in CATALOGUE)
    for name in names("theory"):
        module = importlib.import_module(f"fedkeel.theory.{name}")
        assert f"- {cited(name, 'theory')[0]}" in module.__doc__


def test_every_paper_is_used_and_says_who_and_what() -> None:
    used = {paper.key for kind in KINDS for name in names(kind) for paper in cited(name, kind)}
    assert used == set(references())
    for paper in references().values():
        assert paper.title
        assert paper.short
        if paper.authors and paper.key != OWN:
            assert paper.year
            assert paper.short.endswith(str(paper.year))
        if paper.arxiv:
            assert re.fullmatch(r"\d{4}\.\d{4,5}", paper.arxiv)
            assert abs(2000 + int(paper.arxiv[:2]) - paper.year) <= 4
        assert not paper.link or paper.link.startswith("https://")


def test_bibtex_is_ascii_and_balanced() -> None:
    for paper in references().values():
        entry = paper.bibtex()
        assert entry.isascii()
        assert entry.count("{") == entry.count("}")
        assert entry.startswith(
            f"@{'inproceedings' if paper.booktitle else 'article' if paper.journal else 'misc'}{{{paper.key},"
        )


def test_explain_gives_the_papers_of_a_method_and_of_what_it_wraps() -> None:
    told = explain_method(fk.relaxed(fk.SCAFFOLD(), 0.1))
    keys = [paper["key"] for paper in told.as_dict()["references"]]
    assert keys == ["sun2023fedinit", "shen2026", "karimireddy2020"]
    assert "arxiv.org/abs/2306.05706" in str(told)


def test_a_method_of_ones_own_has_no_reference_of_ours() -> None:
    @fk.method
    class SCAFFOLD(fk.Algorithm):
        """Not the one of the paper."""

    assert explain_method(SCAFFOLD()).references == []
    assert "Reference" not in SCAFFOLD.__doc__


def test_docstrings_that_python_left_out_stay_so() -> None:
    def FedAvg() -> None: ...  # noqa: N802

    add_references("methods", FedAvg)
    assert FedAvg.__doc__ is None


def fedkeel(*line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedkeel", *line], capture_output=True, text=True, check=False
    )


def test_cite_prints_bibtex_for_names_of_every_kind() -> None:
    printed = fedkeel(
        "cite", "relaxed(FedCM(alpha=0.1), beta=0.1)", "Cosine", "interaction", "beyond-4.7"
    ).stdout
    assert re.findall(r"@\w+\{(\w+),", printed) == [
        "sun2023fedinit", "shen2026", "xu2021", "rethinking", "jiang2024", "li2022",
    ]  # fmt: skip


def test_cite_alone_lists_everything() -> None:
    listed = json.loads(fedkeel("cite", "--json").stdout)
    assert listed["methods"]["FedAvg"] == ["mcmahan2017"]
    assert set(listed) == {"papers", *KINDS}
    printed = fedkeel("cite").stdout
    assert all(make.__name__ in printed for make in (*METHODS, *PROBES))


def test_cite_needs_no_torch() -> None:
    code = (
        "import sys; from fedkeel.cli.cite import cite; cite(['SCAFFOLD']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
