"""JSON files: one reader for all of them, and a seal on those that fedkeel writes and reads again.

A sealed table says its format and the SHA-256 of all else it says. One without both is older than the seals,
and is taken as it is; of one that has a single part of the seal the other was lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedkeel.common.errors import StorageError
from fedkeel.common.files import read_whole

FORMAT = 2  # of what is kept on disk; before it had a number (and checksums) it was 1
_DEEPEST = 100  # levels of lists and tables: far more than fedkeel writes, far fewer than Python can take
_SHOWN = 60  # characters of a value in a message


class NotJson(ValueError):
    """Bytes that are no text in JSON; the message says why."""


class Shape(BaseModel):
    """Base of what a table must hold to be used; it may hold more."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, other alphabets as they are."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def parse_json(content: bytes) -> Any:
    """Return the value of a text in JSON; `NotJson` says what is wrong with any other bytes."""
    try:
        value = json.loads(content.decode())
    except UnicodeDecodeError as problem:
        raise NotJson(f"byte {problem.start} is not UTF-8") from None
    except RecursionError:
        raise NotJson("its values are nested too deeply") from None
    except json.JSONDecodeError as problem:
        raise NotJson(f"not JSON: {problem}") from None
    except ValueError:  # Python reads no integer of thousands of digits
        raise NotJson("it holds a number with too many digits") from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Refuse lists and tables inside each other so deep that Python cannot handle them."""
    inside, depth = [value], 0
    while inside:
        inside = [
            part
            for one in inside
            if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
        ]
        depth += 1
        if depth > _DEEPEST:
            raise ValueError("its values are nested too deeply")


def parse_object(content: bytes) -> dict[str, Any]:
    """Return the table of a text in JSON."""
    value = parse_json(content)
    if not isinstance(value, dict):
        raise ValueError(f"it holds {_short(value)}, not a table")
    return value


def read_object(
    path: Path,
    fix: str,
    shape: type[Shape] | None = None,
    now: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> dict[str, Any]:
    """Return the table of a JSON file, its seal checked; whatever is wrong is told with the fix.

    `now` gives a table that an older version wrote today's names.
    """
    try:
        table = now(unsealed(parse_object(read_whole(path))))
        return table if shape is None else fitting(table, shape)
    except OSError as problem:
        raise StorageError(f"{path}: cannot be read: {problem.strerror or problem}: {fix}") from None
    except ValueError as problem:
        raise StorageError(f"{path}: cannot be used: {problem}: {fix}") from None


def fitting(table: dict[str, Any], shape: type[Shape]) -> dict[str, Any]:
    """Return a table that holds what it must; a `ValueError` names what it lacks."""
    try:
        shape.model_validate(table)
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
        name = ".".join(map(str, error["loc"]))
        if error["type"] == "missing":
            raise ValueError(f"it lacks {name!r}") from None
        reason = error["msg"].removeprefix("Value error, ")
        raise ValueError(f"its {name} is {_short(error['input'])}: {reason[0].lower()}{reason[1:]}") from None
    return table


def sealed(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with its format and its SHA-256."""
    content = {**table, "format": FORMAT}
    return {**content, "sha256": _digest(content)}


def unsealed(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table without its SHA-256, which is checked; a `ValueError` says what is wrong."""
    content = {key: value for key, value in table.items() if key != "sha256"}
    if "format" not in table and "sha256" not in table:
        return content
    known = table.get("format")
    if isinstance(known, int) and known > FORMAT:
        raise ValueError(
            f"it has format {known}, and this version of fedkeel reads up to {FORMAT}: update it"
        )
    if table.get("sha256") != _digest(content):
        raise ValueError("it does not match its own checksum, so it was damaged or edited")
    return content


def _digest(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
