"""How the directories of runs are called: readable, and a name of its own for every method and value."""

from __future__ import annotations

import hashlib
import re

from fedkeel.experiments.expression import parse_method


def method_folder(method: str) -> str:
    """Return a directory's name for a method: the same for every way to write it."""
    name = re.sub(r"[^a-z0-9.]+", "-", method.lower()).strip("-.")
    if name == method.lower():
        return name
    return f"{name[:48]}-{_hash(repr(parse_method(method)))}"


def value_folder(value: str) -> str:
    """Return a directory's name for a value: case and signs count."""
    name = re.sub(r"[^A-Za-z0-9.+-]+", "-", value).strip(".")
    return name if name == value and name else f"{name[:40]}-{_hash(value)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
