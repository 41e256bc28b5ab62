"""A few rows of a long file, found without reading the rest: lines of a run are about equally long.

Their rounds are multiples of a power of 2, at which the runs of a comparison have rows in common.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

from fedkeel.web.tailing import DamagedFile, opened

_BLOCK = 16_384  # bytes that are read at a time
_SHORT = 32 * _BLOCK  # a file of fewer bytes is soon read
_MOST = 64  # rows that are looked for
_TRIES = 4  # at one of them


def glimpse(path: Path) -> list[dict[str, Any]]:
    """Return rows from the begin to the end of a file, and all of its last block; none of a short file."""
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < _SHORT:
                return []
            last = [from_json(line) for line in _lines(file, size - _BLOCK)]
            count = last[0]["round"]
            step = 1
            while count // step > _MOST:
                step *= 2
            found = [_row(file, round, size / (last[-1]["round"] + 1)) for round in range(0, count, step)]
            return [row for row in found if row is not None] + last
    except (OSError, DamagedFile, IndexError):
        return []


def _row(file: BinaryIO, round: int, length: float) -> dict[str, Any] | None:
    """Return the row of a round, where lines have about that length; None where it is not found soon."""
    start = round * length - _BLOCK / 2
    for _ in range(_TRIES):
        lines = _lines(file, max(0, int(start)))
        index = round - from_json(lines[0])["round"]
        if 0 <= index < len(lines):
            row = from_json(lines[index])
            return row if row["round"] == round else None
        start += (index - len(lines) / 2) * length
    return None


def _lines(file: BinaryIO, start: int) -> list[bytes]:
    """Return the whole lines of the block that begins there."""
    file.seek(start)
    lines = file.read(_BLOCK).split(b"\n")
    return lines[1 if start else 0 : -1]
