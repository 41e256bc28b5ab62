"""Writes the little TOML that experiments need; Python reads TOML by itself but does not write it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def dump(table: Mapping[str, Any], prefix: str = "") -> str:
    """Return a table of plain values and nested tables as TOML; None is left out."""
    plain = {
        key: value for key, value in table.items() if not isinstance(value, Mapping) and value is not None
    }
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    text = "\n".join(lines) + ("\n" if lines else "")
    for key, value in table.items():
        if isinstance(value, Mapping):
            name = f"{prefix}{_key(key)}"
            text += f"\n[{name}]\n" + dump(value, prefix=f"{name}.")
    return text


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)
