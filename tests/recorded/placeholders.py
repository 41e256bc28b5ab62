"""Puts placeholders where an outcome differs from time to time, or from machine to machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

TIME, HASH, VERSIONS = "<time>", "<hash>", "<versions>"
_TIMES = re.compile(r"(final |mean )?(seconds|estimate|time)( to .*| per .*)?")  # headings of columns
_PATTERNS = [
    (re.compile(pattern), text)
    for pattern, text in (
        (
            r"(?<![\w.])(\d+ h \d\d min|\d+ min \d\d s|\d+(\.\d+)? ?(days?|seconds?|h|min|s|ms|µs))(?!\w)",
            TIME,
        ),
        (r"of which \S+( %)? evaluation and \S+( %)? probes", "of which <shares>"),
        (r"\b(fedkeel|python|torch|numpy|scipy|optuna) \d[\w.+]*", r"\1 <version>"),
        (r"platform \w+", "platform <platform>"),
        (
            r"\b([0-9a-f]{12}|[0-9a-f]{32,64})\b",
            HASH,
        ),  # of weights, whose last bits are the machine's; of a run
        (r"\b\d{8}-\d{6}\b", "<date>"),
        (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?\b", "<date>"),
    )
]
_CELLS = (re.compile(r" {2,}"), re.compile(r" *\| *"), re.compile(r" *& *"))
_ROOT = str(Path(__file__).parents[2])


def plain(value: Any, here: Path, key: str = "") -> Any:
    """Return JSON without times, versions and what else is of this machine."""
    if value is not None and ("seconds" in key or key == "versions"):
        return TIME if "seconds" in key else VERSIONS
    if isinstance(value, str):
        return plain_text(value, here)
    if isinstance(value, list):
        return [plain(part, here) for part in value]
    if isinstance(value, dict):
        if {"headings", "rows"} <= value.keys():
            value = {**value, "rows": _without_times(value["headings"], value["rows"])}
        if "y" in value and _TIMES.fullmatch(str(value.get("name"))):  # a line of a chart
            value = {**value, "y": TIME}
        return {plain_text(name, here): plain(part, here, name) for name, part in value.items()}
    return value


def plain_text(text: str, here: Path) -> str:
    """Return a text without times, versions and what else is of this machine; so for the tables in it."""
    for path, name in ((str(here), "<here>"), (_ROOT, "<fedkeel>")):
        text = text.replace(path, name)
    for pattern, placeholder in _PATTERNS:
        text = pattern.sub(placeholder, text)
    lines = text.split("\n")
    for cells in _CELLS:
        lines = _without_time_columns(lines, cells)
    return "\n".join(line.rstrip() for line in lines)


def plain_table(rows: list[list[str]], here: Path) -> dict[str, Any]:
    """Return the rows of a CSV file, numbers as numbers."""
    headings, *lines = rows
    kept = [[_number(plain_text(cell, here)) for cell in line] for line in _without_times(headings, lines)]
    return {"headings": headings, "rows": kept}


def _number(cell: str) -> str | float | int:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell


def _without_times(headings: list[str], rows: list[list[str]]) -> list[list[str]]:
    times = {index for index, heading in enumerate(headings) if _TIMES.fullmatch(heading.strip())}
    return [[TIME if i in times and cell else cell for i, cell in enumerate(row)] for row in rows]


def _without_time_columns(lines: list[str], separator: re.Pattern[str]) -> list[str]:
    """Put placeholders into the columns of seconds of tables in plain text, counted from the right."""
    times: list[int] = []
    width, made = 0, []
    for text in lines:
        line = text.rstrip()
        cells = separator.split(line)
        if any(_TIMES.fullmatch(cell.strip(" \\")) for cell in cells[1:]):
            width = len(cells)
            times = [i for i, cell in enumerate(cells) if _TIMES.fullmatch(cell.strip(" \\"))]
        elif len(cells) == width and times and "---" not in line:
            signs = separator.findall(line)
            kept = [TIME if i in times else cell for i, cell in enumerate(cells)]
            made.append("".join(part for pair in zip(kept, [*signs, ""], strict=True) for part in pair))
            continue
        elif not line:
            times = []
        made.append(line)
    return made
