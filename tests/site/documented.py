"""What README and docs/ show: their commands and their Python, page by page, in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "methods").glob("*.md")),
    *sorted((ROOT / "docs" / "results").rglob("*.md")),
]
_PROGRAMS = ("fedkeel", "make", "python", "pip")


class Block(NamedTuple):
    """A block of code: its language (empty for none) and its text."""

    language: str
    text: str


def name(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = re.findall(r"^```([\w{}]*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(language, text) for language, text in found]


def commands(page: Path) -> list[str]:
    """Return the command lines of a page, each on one line, with the remark behind it."""
    text = "\n".join(block.text for block in blocks(page) if block.language in ("", "bash", "console"))
    lines = [" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines()]
    starts = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{'|'.join(_PROGRAMS)}) [a-z\-.\"]|fedkeel$")
    return [line for line in lines if starts.match(line)]


def python(page: Path) -> list[str]:
    """Return the Python of a page, block after block."""
    return [block.text for block in blocks(page) if block.language == "python"]
