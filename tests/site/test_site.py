"""The built site: complete, without a request to elsewhere, with its external links in a list."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from documented import ROOT

import fedkeel as fk

SITE = Path(os.environ.get("FEDKEEL_SITE", ROOT / "build" / "site"))
sys.path.insert(0, str(ROOT / "docs"))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    if not (SITE / "index.html").exists():
        pytest.skip("there is no built site: `make site` builds it")
    return {str(page.relative_to(SITE)): page.read_text() for page in SITE.rglob("*.html")}


def test_every_public_name_is_in_the_reference() -> None:
    from site_pages import MODULES, api_pages, names_of

    text = "\n".join(api_pages().values())
    for name in fk.__all__:
        assert name in MODULES or re.search(rf"\{{py:\w+\}} {name}\b", text), name
    for module in MODULES:
        for name in names_of(getattr(fk, module)):
            assert re.search(rf"\{{py:\w+\}} {name}\b", text), f"{module}.{name}"


def test_every_page_of_the_docs_is_in_the_site(pages: dict[str, str]) -> None:
    for page in (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "methods").glob("*.md")):
        built = str(page.relative_to(ROOT / "docs").with_suffix(".html"))
        assert built in pages, f"{built}: run `make site`"


def test_the_site_asks_nothing_of_elsewhere(pages: dict[str, str]) -> None:
    """Scripts, style sheets, fonts and pictures are in the site itself."""
    loaded = r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"'](?:https?:)?//[^\"']+"
    linked = r"<link\b[^>]*\bhref=[\"'](?:https?:)?//[^\"']+"
    sources = re.compile(f"{loaded}|{linked}")
    for name, text in pages.items():
        assert not sources.findall(text), name
    for sheet in SITE.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text()), sheet


def test_links_inside_lead_somewhere(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        shown = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)  # pages of results carry plotly
        for target in re.findall(r"<a\b[^>]*\bhref=\"([^\"#?]+)[^\"]*\"", shown):
            if not re.match(r"[a-z]+:", target):
                there = ((SITE / name).parent / target).resolve()
                assert there.exists(), (name, target)


def test_external_links_are_listed_and_safe(pages: dict[str, str]) -> None:
    listed = [line.split("\t")[0] for line in (SITE / "external-links.txt").read_text().splitlines()]
    assert len(listed) > 30
    plain = [link for link in listed if not link.startswith("https://")]
    assert not plain
    assert any("proceedings.mlr.press" in link for link in listed)


def test_a_page_of_a_method_has_all_its_parts(pages: dict[str, str]) -> None:
    for make in fk.METHODS:
        text = pages[f"methods/{make.__name__.lower()}.html"]
        for part in ("The rule", "Settings", "What it costs", "Results in our experiments", "Use it"):
            assert f">{part}<" in text, (make.__name__, part)
