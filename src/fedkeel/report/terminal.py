"""A document on a terminal: what its summary says, as tables and paragraphs. Nothing is cut."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from io import StringIO
from pathlib import Path

from rich.console import Console

from fedkeel.common.progress import as_lines, console, plain_table
from fedkeel.report.inline import inline_table
from fedkeel.report.page.document import Block, Code, Document, FactList, Table, Text

_HEADING_WIDTH = 26  # longer headings have line breaks
_WIDTH = 200  # of a text that is no terminal's


def print_document(document: Document, page: Path | None = None, screen: Console | None = None) -> None:
    """Print a document's summary, and where its page is."""
    screen = screen or console()
    for index, block in enumerate(document.summary):
        if index:
            screen.print()
        _print(screen, block)
    if page is not None:
        screen.print(f"\nPage: {page}", markup=False, soft_wrap=True)


def document_text(document: Document) -> str:
    """Return what `print_document` prints."""
    stream = StringIO()
    print_document(document, screen=Console(file=stream, width=_WIDTH, emoji=False, highlight=False))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def document_html(document: Document) -> str:
    """Return a document's summary for a notebook's cell."""
    return "".join(_html(block) for block in document.summary)


def _print(screen: Console, block: Block) -> None:
    match block:
        case Table():
            if block.title:
                screen.print(block.title, style="bold", markup=False)
            print_table(screen, block.headings, block.rows, block.left)
            if block.note:
                _print_text(screen, block.note)
        case Text():
            for paragraph in block.paragraphs:
                _print_text(screen, paragraph)
        case Code():
            _print_text(screen, f"{block.title}: {block.text}" if block.title else block.text)
        case FactList():
            for name, value in block.rows:
                _print_text(screen, f"{name}: {value}")


def _print_text(screen: Console, text: str) -> None:
    screen.print(text, markup=False, highlight=False, soft_wrap=not screen.is_terminal)


def _html(block: Block) -> str:
    match block:
        case Table():
            title = f"<p><b>{escape(block.title)}</b></p>" if block.title else ""
            return title + inline_table(block.headings, block.rows)
        case Text():
            return "".join(f"<p>{escape(paragraph)}</p>" for paragraph in block.paragraphs)
        case Code():
            return f"<p>{escape(block.title)} <code>{escape(block.text)}</code></p>"
        case FactList():
            return inline_table(("", ""), block.rows)
    return ""


def print_table(
    screen: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)
) -> None:
    """Print a plain table; where it is too wide for the screen, its lines go on below.

    Columns of `left` begin at the left, the others end at the right.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(headings)
    below = [max(map(len, column), default=0) for column in columns]
    broken = [
        textwrap.wrap(heading.replace(" %", "\u00a0%"), max(_HEADING_WIDTH, width)) or [""]
        for heading, width in zip(headings, below, strict=True)
    ]
    widths = [max(width, *map(len, lines)) for width, lines in zip(below, broken, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > screen.width:
        screen.print(as_lines(headings, rows), markup=False, soft_wrap=True)
    else:
        table = plain_table(["\n".join(lines).replace("\u00a0", " ") for lines in broken], rows)
        for index in left:
            table.columns[index].justify = "left"
        screen.print(table)
