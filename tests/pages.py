"""What tests read off a page: its document, and all of its texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from fedkeel.report.page.document import Document


class Tags(HTMLParser):
    """The elements of a page: each with its attributes and the text inside, and those left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "br"}:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def document_in(page: str | Path) -> Document:
    """Return the document that a page holds."""
    text = page.read_text() if isinstance(page, Path) else page
    found = re.search(
        r'<script id="fedkeel-document" type="application/json">(.*?)</script>', text, re.DOTALL
    )
    assert found is not None
    return Document.model_validate_json(found[1])


def block(document: Document, name: str) -> Any:
    """Return the block of a document by its name."""
    return next(one for section in document.sections for one in section.blocks if one.id == name)


def texts(value: Any) -> Iterator[str]:
    """Yield every text of a document."""
    if isinstance(value, Document):
        value = value.model_dump()
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts(part)
