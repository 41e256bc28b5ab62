"""Files that are whole or absent, read without surprises; errors of the system as messages with a fix."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedkeel.errors import StorageError


def cache_directory() -> Path:
    """Return where fedkeel keeps what is worth remembering between processes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedkeel"


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals into messages that name the path and the fix."""
    try:
        yield
    except OSError as problem:
        fix = {
            errno.ENOSPC: "free some room and resume; the last checkpoint is whole",
            errno.EDQUOT: "free some room and resume; the last checkpoint is whole",
            errno.EACCES: "choose a directory you may write to",
            errno.EROFS: "choose a directory you may write to",
        }.get(problem.errno or 0, "choose another directory")
        where = _asked_for(problem.filename or path)
        raise StorageError(f"{where}: {problem.strerror or problem}: {fix}") from problem


def _asked_for(where: object) -> str:
    """Return the name of a file for its temporary one, which nobody asked for."""
    path = Path(str(where))
    hidden = path.name.startswith(".") and path.name.endswith(".tmp")
    return str(path.with_name(path.name[1:-4])) if hidden and len(path.name) > 5 else str(where)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even after a crash."""
    temporary = temporary_name(path)
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def temporary_name(path: Path) -> Path:
    """Return the name under which a file is written before it takes its own."""
    return path.with_name(f".{path.name}.tmp")


def sync_directory(path: Path) -> None:
    """Make a directory's entries durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, other alphabets as they are."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, one per line, up to the first torn line; none where it is absent."""
    if not path.exists():
        return
    with storage_errors(path):
        text = path.read_text()
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            return
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return
