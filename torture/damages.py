"""Ways to damage a file of a run, each drawn from randomness that is given."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRONG = [
    b"",
    b"[]",
    b"1",
    b"null",
    b"{}",
    b'"x"',
    b"\xff",
    b"[" * 100_000,
    b'{"a":' * 5000,
    b"9" * 5000,
    b"\0" * 64,
]
TYPES: list[Any] = [None, "x", -1, 1e308, [], {}, [[]], True, 10**30, "\ud7ff"]


def damage(file: Path, others: list[Path], rng: random.Random) -> str:
    """Damage a file; `others` are files of the same name in other runs. Return what was done."""
    if others and rng.random() < 0.15:
        donor = rng.choice(others)
        shutil.copyfile(donor, file)
        return f"replaced by {donor}"
    return rng.choice(KINDS)(file, rng)


def flip(file: Path, rng: random.Random) -> str:
    content = bytearray(file.read_bytes())
    bits = [rng.randrange(8 * len(content)) for _ in range(rng.choice([1, 1, 1, 3]))] if content else []
    for bit in bits:
        content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    return f"bits {bits} flipped"


def cut(file: Path, rng: random.Random) -> str:
    content = file.read_bytes()
    at = rng.randrange(len(content) + 1)
    front = rng.random() < 0.3
    file.write_bytes(content[at:] if front else content[:at])
    return f"{'first' if front else 'all but the first'} {at} bytes cut"


def garble(file: Path, rng: random.Random) -> str:
    content = bytearray(file.read_bytes())
    start = rng.randrange(len(content) + 1)
    length = rng.randrange(1, 40)
    content[start : start + length] = rng.choice([bytes(length), rng.randbytes(length)])
    file.write_bytes(content)
    return f"{length} bytes at {start} overwritten"


def append(file: Path, rng: random.Random) -> str:
    more = rng.choice([b"\xff", b"\n", b"{}\n", b"null\n", b'{"round": 99}\n', rng.randbytes(20)])
    file.write_bytes(file.read_bytes() + more)
    return f"{more!r} appended"


def lose_line(file: Path, rng: random.Random) -> str:
    lines = file.read_bytes().splitlines(keepends=True)
    at = rng.randrange(max(1, len(lines)))
    file.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
    return f"line {at + 1} lost"


def double_line(file: Path, rng: random.Random) -> str:
    lines = file.read_bytes().splitlines(keepends=True)
    at = rng.randrange(max(1, len(lines)))
    file.write_bytes(b"".join(lines[: at + 1] + lines[at:]))
    return f"line {at + 1} doubled"


def move_line(file: Path, rng: random.Random) -> str:
    lines = file.read_bytes().splitlines(keepends=True)
    a, b = (rng.randrange(max(1, len(lines))) for _ in range(2))
    if lines:
        lines[a], lines[b] = lines[b], lines[a]
    file.write_bytes(b"".join(lines))
    return f"lines {a + 1} and {b + 1} swapped"


def wrong(file: Path, rng: random.Random) -> str:
    content = rng.choice(WRONG)
    file.write_bytes(content)
    return f"replaced by {content[:12]!r} ({len(content)} bytes)"


def remove(file: Path, rng: random.Random) -> str:
    file.unlink()
    if rng.random() < 0.3:
        file.mkdir()
        return "replaced by a directory"
    return "removed"


def retype(file: Path, rng: random.Random) -> str:
    """Give one entry of a JSON file another type; a line of JSON lines, where it is one."""
    lines = file.read_bytes().splitlines(keepends=True) if file.suffix == ".jsonl" else [file.read_bytes()]
    at = rng.randrange(max(1, len(lines)))
    try:
        value = json.loads(lines[at])
    except (ValueError, IndexError):
        return flip(file, rng)
    where, key = _entry(value, rng)
    new = rng.choice(TYPES)
    where[key] = new
    lines[at] = json.dumps(value, indent=2 if len(lines) == 1 else None).encode() + b"\n"
    file.write_bytes(b"".join(lines))
    return f"entry {key!r} set to {new!r}"


def _entry(value: Any, rng: random.Random) -> tuple[Any, Any]:
    """Return a random entry of nested lists and tables: what holds it, and its key."""
    where, key = [value], 0
    while isinstance(where[key], dict | list) and where[key] and (rng.random() < 0.7 or where[key] is value):
        where = where[key]
        key = rng.choice(list(where)) if isinstance(where, dict) else rng.randrange(len(where))
    return where, key


KINDS: list[Callable[[Path, random.Random], str]] = [
    flip, cut, garble, lose_line, double_line, move_line, wrong, append, remove, retype,
]  # fmt: skip
