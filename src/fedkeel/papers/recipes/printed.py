"""Numbers as a paper prints them: 78.77±.11, 2000+, 1.19×, x for a target that was never reached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

NEVER, ABSENT = "x", "-"  # a target that was not reached within the run; nothing printed
_NUMBER = re.compile(r"(?P<value>-?\d*\.?\d+)(±(?P<spread>\d*\.?\d+))?(?P<more>\+?)×?")


class Printed(NamedTuple):
    """A printed number; `beyond`: the truth lies above it; None is a target that was never reached."""

    text: str
    value: float | None
    spread: float | None = None
    beyond: bool = False


def read_number(text: str) -> Printed | None:
    """Read one printed number; None where nothing is printed.

    >>> read_number("78.77±.11")
    Printed(text='78.77±.11', value=78.77, spread=0.11, beyond=False)
    >>> read_number("2000+").beyond
    True
    """
    if text == ABSENT:
        return None
    if text == NEVER:
        return Printed("not reached", None, beyond=True)
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no printed number: write it as 78.77, 78.77±.11, 2000+, 1.19×, x or -")
    spread = None if found["spread"] is None else float(found["spread"])
    return Printed(text, float(found["value"]), spread, bool(found["more"]))


def read_rows(text: str, columns: Sequence[str]) -> dict[str, dict[str, Printed]]:
    """Read a table written as lines of `row | number number …`, one number for each column."""
    rows: dict[str, dict[str, Printed]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        label, bar, rest = (part.strip() for part in line.partition("|"))
        numbers = rest.split()
        if not bar or len(numbers) != len(columns):
            raise ValueError(f"{line!r}: write a row, a | and {len(columns)} numbers, one for each column")
        if label in rows:
            raise ValueError(f"{line!r}: the row {label!r} is there twice")
        read = {column: read_number(number) for column, number in zip(columns, numbers, strict=True)}
        rows[label] = {column: number for column, number in read.items() if number is not None}
    return rows
