"""Tables with as many columns as were asked for: long headings have line breaks, nothing is cut."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Console

from fedkeel.common.progress import as_lines, plain_table

_HEADING_WIDTH = 26  # longer headings have line breaks


def print_table(screen: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table; where it is too wide for the screen, its lines go on below."""
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
        screen.print(plain_table(["\n".join(lines).replace("\u00a0", " ") for lines in broken], rows))
