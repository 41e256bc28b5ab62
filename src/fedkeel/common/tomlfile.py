"""Experiments as TOML: Python reads TOML by itself, tomli-w writes it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedkeel.common.jsonfiles import check_depth, unsealed


def parse(text: str) -> dict[str, Any]:
    """Return the table of a text in TOML; a `ValueError` says what is wrong with any other text."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python reads no integer of thousands of digits
        raise ValueError("it holds a number with too many digits") from None
    check_depth(table)
    return table


def read(path: Path) -> dict[str, Any]:
    """Return the table of a TOML file, or raise `OSError` or `ValueError`, which say what is wrong."""
    try:
        return parse(path.read_bytes().decode())
    except UnicodeDecodeError:
        raise ValueError("not a text in UTF-8") from None


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the table of a sealed TOML file; see `read`."""
    return unsealed(read(path))


def dump(table: Mapping[str, Any]) -> str:
    """Return a table of plain values and nested tables as TOML; None is left out, other objects are text."""
    return tomli_w.dumps(_plain(table))


def inline(value: Any) -> str:
    """Return one value as TOML on a single line, as `--set key=value` takes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    return dump({"v": value}).removeprefix("v = ").removesuffix("\n")


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a table with its nested ones as dotted keys.

    >>> flat({"work": {"lr": 0.1}})
    {'work.lr': 0.1}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items() if part is not None}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, bool | int | float | str) else str(value)
