"""A value in a few lines: as text for `print`, as a small table for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def as_text(title: str, facts: Mapping[str, str]) -> str:
    """Return a title and a line per fact."""
    width = max(map(len, facts), default=0) + 2
    return "\n".join([title, *(f"  {name:<{width}}{text}" for name, text in facts.items())])


def as_html(title: str, facts: Mapping[str, str]) -> str:
    """Return the same as a table."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in facts.items()
    )
    return f"<div><b>{escape(title)}</b><table>{lines}</table></div>"
