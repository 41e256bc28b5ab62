"""What a study has finished already: whole parts, in a directory that belongs to its settings alone.

A part is made once: a study that is killed at any instant and started again with the same settings reads the
parts that are there and goes on with the next. A torn or damaged part is made again.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from fedkeel.errors import StorageError
from fedkeel.files import storage_errors, write_durably

FILE = "study.json"
_DIGITS = 65  # of the digest that a part begins with, and the end of its line


def claim(out: Path, kind: str, settings: Mapping[str, Any]) -> None:
    """Make a directory a study's own, or go on in it; refuse one that holds other settings, or other things.

    What may grow from one call to the next (pairs, values, trials) is no part of `settings`. A directory in
    which nothing was begun yet is free: a mistake in the settings binds nobody.
    """
    now = json.loads(json.dumps({"study": kind, "settings": dict(settings)}))
    with storage_errors(out):
        before = _claimed(out)
        if before is None:
            out.mkdir(parents=True, exist_ok=True)
            write_durably(out / FILE, json.dumps(now, ensure_ascii=False, indent=2).encode())
            return
    if before["study"] != kind:
        raise StorageError(f"{out} holds {_a(before['study'])}, not {_a(kind)}: choose another directory")
    told, asked = dict(_flat(before["settings"])), dict(_flat(now["settings"]))
    for key in {**told, **asked}:
        if told.get(key) != asked.get(key):
            raise StorageError(
                f"{out} belongs to another {kind}: its {key} is {_shown(told.get(key))}, not "
                f"{_shown(asked.get(key))}; choose another directory or the same settings"
            )


def kept(path: Path | None, make: Callable[[], Any], there: Callable[[], None] | None = None) -> Any:
    """Return a part that is there already (and say so to `there`); else make it, and keep it if given a path.

    A part is made of what JSON has: numbers to the bit, lists for tuples, kept or not.
    """
    found = None if path is None else read(path)
    if found is not None:
        if there is not None:
            there()
        return found
    text = json.dumps(make())
    if path is not None:
        _write(path, text.encode())
    return json.loads(text)


def read(path: Path) -> Any:
    """Return a part, None where it is missing or damaged."""
    content = _read(path)
    return None if content is None else json.loads(content)


def keep_tensors(path: Path | None, tensors: dict[str, Tensor]) -> None:
    """Keep a part that is made of tensors, where a path is given."""
    if path is not None:
        _write(path, save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def read_tensors(path: Path | None) -> dict[str, Tensor] | None:
    """Return a part that is made of tensors, None where it is missing or damaged."""
    content = None if path is None else _read(path)
    return None if content is None else load(content)


def _write(path: Path, content: bytes) -> None:
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, _digest(content) + content)


def _read(path: Path) -> bytes | None:
    """Return what a file holds behind its digest, None where there is none or it does not fit."""
    with storage_errors(path):
        if not path.exists():
            return None
        whole = path.read_bytes()
    digest, content = whole[:_DIGITS], whole[_DIGITS:]
    if _digest(content) != digest:
        warnings.warn(f"{path} is damaged and is made again", stacklevel=4)
        return None
    return content


def _claimed(out: Path) -> dict[str, Any] | None:
    """Return what a directory was claimed for, None where it is free."""
    names = sorted(path.name for path in out.iterdir()) if out.exists() else []
    begun = [name for name in names if name != FILE and not name.startswith(".")]
    if not begun:
        return None
    if FILE not in names:
        raise StorageError(f"{out}: holds {begun[0]} and no study: choose an empty or new directory")
    try:
        found: dict[str, Any] = json.loads((out / FILE).read_text())
        return {"study": found["study"], "settings": dict(found["settings"])}
    except (ValueError, KeyError, TypeError) as problem:
        raise StorageError(f"{out / FILE}: cannot be read ({problem}): choose another directory") from None


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)
