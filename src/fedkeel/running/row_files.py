"""The rows of a run on disk: JSON lines, each with a checksum that only a line of this run can have.

A line that was lost, doubled, moved, damaged or put there from another run is found by its own checksum and
its round. The last entry of a line is the checksum; any reader of JSON lines sees it as one more column.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.errors import StorageError
from fedkeel.common.files import read_whole
from fedkeel.common.jsonfiles import Shape, fitting, json_text, parse_object
from fedkeel.common.older import identity_before, row_now

_CHECK = b', "check": "'
_END = b'"}'


class _OlderRow(Shape):
    """What a line without a checksum must hold, from before there were any."""

    round: int
    cohort: list[int] | None = None
    train_loss: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    bytes_down: float = 0
    bytes_up: float = 0
    seconds: float = 0


class RunKey(NamedTuple):
    """What ties a file to its run: the hash of all that decides the run's numbers.

    A run from before there were checksums is `older`: it is read without them where they are missing.
    """

    sha256: str
    older: bool

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> RunKey:
        """Return the key of the run with this manifest."""
        return cls._of(manifest, "")

    @classmethod
    def of_timings(cls, manifest: Mapping[str, Any]) -> RunKey:
        """Return the key of the run's timings: they differ where the same run is made twice."""
        return cls._of(manifest, manifest.get("run_id", ""))

    @classmethod
    def _of(cls, manifest: Mapping[str, Any], more: str) -> RunKey:
        identity = json.dumps(identity_before(manifest["identity"]), sort_keys=True)
        return cls(hashlib.sha256((identity + more).encode()).hexdigest(), "format" not in manifest)

    def check(self, body: bytes) -> bytes:
        """Return the checksum of a line of the run."""
        return hashlib.blake2b(body, key=self.sha256.encode(), digest_size=8).hexdigest().encode()


class RowLine(NamedTuple):
    """A line of a file, whole, and the row that it holds."""

    content: bytes
    row: dict[str, Any]


class FoundLines(NamedTuple):
    """The whole lines of a file by their round, and what is wrong with the others."""

    lines: dict[int, RowLine]
    problems: list[str]
    torn: bool = False  # whether the last line has no end: it is being written, or was cut

    @property
    def whole(self) -> int:
        """Return how many rounds from the first on have a line."""
        return next(count for count in range(len(self.lines) + 1) if count not in self.lines)


def line_of(row: Mapping[str, Any], key: RunKey) -> bytes:
    """Return a row as a line, with its checksum."""
    body = json_text(row)[:-1].encode()
    return body + _CHECK + key.check(body) + _END + b"\n"


def compressed(lines: Iterable[bytes]) -> bytes:
    """Return lines as a part of a gzip file; parts may follow each other."""
    return gzip.compress(b"".join(lines), mtime=0)


def find_lines(content: bytes, key: RunKey) -> FoundLines:
    """Return the lines of a file by round; a last line without its end is being written and is left out."""
    found, problems = dict[int, RowLine](), list[str]()
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            row = _parse(line, key)
        except ValueError as problem:
            problems.append(f"line {number}: {problem}")
            continue
        if row["round"] in found:
            problems.append(f"line {number}: round {row['round']} is there twice")
        found.setdefault(row["round"], RowLine(line + b"\n", row))
    missing = next((round for round in range(len(found)) if round not in found), None)
    if missing is not None:
        problems.append(f"the line of round {missing} is missing")
    return FoundLines(found, problems, torn=bool(rest))


def read_lines(path: Path, key: RunKey) -> FoundLines:
    """Return the lines of a file, compressed or not; none where it is absent."""
    try:
        content = read_whole(path)
    except FileNotFoundError:
        return FoundLines({}, [])
    except OSError as problem:
        raise StorageError(
            f"{path}: cannot be read: {problem.strerror or problem}: restore it, or start anew elsewhere"
        ) from None
    return find_lines(_expanded(content) if path.suffix == ".gz" else content, key)


def _parse(line: bytes, key: RunKey) -> dict[str, Any]:
    body, mark, rest = line.rpartition(_CHECK)
    if not mark and key.older:
        row = fitting(parse_object(line), _OlderRow)
    elif rest != key.check(body) + _END:
        raise ValueError("it does not match its checksum, so it was damaged or is of another run")
    else:
        row = json.loads(body + b"}")
    return row_now(row)


def _expanded(content: bytes) -> bytes:
    """Return what a gzip file holds, up to where it is damaged."""
    found = b""
    while content:
        part = zlib.decompressobj(wbits=31)
        try:
            found += part.decompress(content)
        except zlib.error:
            break
        content = part.unused_data
    return found
