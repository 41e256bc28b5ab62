"""Says in what an outcome is not the recorded one: by words and numbers, not by last digits or blanks."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

RELATIVE, TINY = 2e-3, 1e-9
_TOKEN = re.compile(r"\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?(?:e[-+]?\d+)?|[^\W\d]+|[^\w\s]|_")
_NOTHING = object()


def differences(recorded: Any, made: Any, renamed: Mapping[str, str], place: str = "") -> Iterator[str]:
    """Yield what differs; `renamed` are keys of JSON that are another word on purpose now.

    A key with dots before it, as `methods[].accuracy`, is that key at such places alone.
    """
    if isinstance(recorded, str) and isinstance(made, str):
        yield from _of_texts(recorded, made, place)
    elif isinstance(recorded, dict) and isinstance(made, dict):
        before = {_name_now(place, key, renamed): part for key, part in recorded.items()}
        for key in [*before, *(key for key in made if key not in before)]:
            parts = before.get(key, _NOTHING), made.get(key, _NOTHING)
            yield from _of_parts(*parts, renamed, f"{place}.{key}")
    elif isinstance(recorded, list) and isinstance(made, list):
        for index, parts in enumerate(zip_longest(recorded, made, fillvalue=_NOTHING)):
            yield from _of_parts(*parts, renamed, f"{place}[{index}]")
    elif not _same(recorded, made):
        yield f"{place}: {_short(recorded)} → {_short(made)}"


def alike(recorded: str, made: str) -> bool:
    """Tell whether two texts have the same words, and numbers that are the same but for the last digit."""
    pairs = zip_longest(_TOKEN.findall(recorded), _TOKEN.findall(made), fillvalue="")
    return all(one == other or _same_printed(one, other) for one, other in pairs)


def _name_now(place: str, key: str, renamed: Mapping[str, str]) -> str:
    """Return what a key is called now: the longest name of a place that it ends with decides."""
    whole = re.sub(r"\[\d+\]", "[]", f"{place}.{key}")
    fitting = [name for name in renamed if f".{whole}".endswith(f".{name}")]
    return renamed[max(fitting, key=len)] if fitting else key


def _of_parts(recorded: Any, made: Any, renamed: Mapping[str, str], place: str) -> Iterator[str]:
    if made is _NOTHING:
        yield f"{place}: {_short(recorded)} is gone"
    elif recorded is _NOTHING:
        yield f"{place}: {_short(made)} is new"
    else:
        yield from differences(recorded, made, renamed, place)


def _of_texts(recorded: str, made: str, place: str) -> Iterator[str]:
    if alike(recorded, made):
        return
    if "\n" not in recorded + made:
        yield f"{place}: {recorded!r} → {made!r}"
        return
    before, now = recorded.splitlines(), made.splitlines()
    known = {line: next((old for old in before if alike(old, line)), line) for line in now}
    told = list(
        difflib.unified_diff(before, [known[line] for line in now], "recorded", "now", lineterm="", n=1)
    )
    yield "\n".join([f"{place}:" * bool(place), *(told or ["the same lines, in another order"])]).strip()


def _same(one: Any, other: Any) -> bool:
    """Tell whether two values of JSON that hold no others are the same; a count has no tolerance."""
    kinds = {type(one), type(other)}
    if float in kinds and kinds <= {int, float}:
        return (
            one == other
            or math.isclose(one, other, rel_tol=RELATIVE, abs_tol=TINY)
            or one != one != other != other
        )
    return type(one) is type(other) and one == other


def _same_printed(one: str, other: str) -> bool:
    """Tell whether two printed numbers are the same, or a unit of the last digit apart.

    Counts have no tolerance, but for long ones with commas, which are estimates; nor has what is printed with
    one or two digits, as a setting is.
    """
    if not (one[:1].isdigit() and other[:1].isdigit()):
        return False
    a, b = float(one.replace(",", "")), float(other.replace(",", ""))
    if a == b or (one.isdigit() and other.isdigit()) or min(_digits(one), _digits(other)) < 3:
        return a == b
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=1.001 * min(_unit(one), _unit(other)))


def _digits(number: str) -> int:
    """Return how many digits of a printed number count."""
    return len(re.sub(r"\D", "", number.partition("e")[0]).lstrip("0"))


def _unit(number: str) -> float:
    """Return what the last digit of a printed number counts; no unit of a count is looked at."""
    mantissa, _, exponent = number.partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
