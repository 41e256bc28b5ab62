"""Files that are whole or absent; the system's refusals as messages with a fix; no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fedkeel.common.errors import StorageError


def cache_directory() -> Path:
    """Return where fedkeel keeps what is worth remembering between processes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedkeel"


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals into messages that name the path and the fix."""
    try:
        yield
    except OSError as problem:
        raise as_storage_error(problem, path) from problem


def as_storage_error(problem: OSError, path: Path | None = None) -> StorageError:
    """Return a refusal of the system as a message that names its path, or the one given, and the fix."""
    fix = {
        errno.ENOSPC: "free some room and resume; the last checkpoint is whole",
        errno.EDQUOT: "free some room and resume; the last checkpoint is whole",
        errno.EACCES: "choose a directory you may write to",
        errno.EPERM: "choose a directory you may write to",
        errno.EROFS: "choose a directory you may write to",
        errno.ENAMETOOLONG: "choose a shorter name",
        errno.ELOOP: "a symbolic link, which is not followed: remove it, or choose another directory",
    }.get(problem.errno or 0, "choose another directory")
    where = _asked_for(problem.filename or path)
    return StorageError(f"{where}: {problem.strerror or problem}: {fix}")


def _asked_for(where: object) -> str:
    """Return the name of a file for its temporary one, which nobody asked for."""
    path = Path(str(where))
    hidden = path.name.startswith(".") and path.name.endswith(".tmp")
    return str(path.with_name(path.name[1:-4])) if hidden and len(path.name) > 5 else str(where)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even after a crash."""
    temporary = temporary_name(path)
    with create(temporary) as file:
        file.write(content)
        sync(file)
    os.replace(temporary, path)
    sync_directory(path.parent)


def create(path: Path) -> BinaryIO:
    """Open a new file for writing in place of what a kill may have left there."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb")


def open_for_appending(path: Path) -> BinaryIO:
    """Open a file to write at its end, and make it where there is none."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "ab")


def open_lock(path: Path) -> BinaryIO:
    """Open a file that is there to be locked, and make it where there is none; it is never emptied."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "r+b")


def sync(file: BinaryIO) -> None:
    """Make what was written to a file durable."""
    file.flush()
    os.fsync(file.fileno())


def temporary_name(path: Path) -> Path:
    """Return the name under which a file is written before it takes its own."""
    return path.with_name(f".{path.name}.tmp")


def make_directory(path: Path) -> None:
    """Make a directory and those above it that are missing, durably."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_directory(made.parent)


def refuse_link(path: Path) -> None:
    """Refuse to work in a directory that is a symbolic link to another."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def sync_directory(path: Path) -> None:
    """Make a directory's entries durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_whole(path: Path) -> bytes:
    """Return what a file of ours holds; what could be read for ever (a pipe, a device) is not read."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a file that can be read", str(path))
    return path.read_bytes()
