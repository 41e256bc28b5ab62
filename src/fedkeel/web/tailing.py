"""Files that grow: only what was appended is read, of plain files alone, and not too much at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

MOST_AT_ONCE = 4_000_000  # bytes of a file that are read at a time
_LONGEST_LINE = 2_000_000


class DamagedFile(Exception):
    """A file of a run cannot be read any further; the message says why."""


def read_small(path: Path, most: int = MOST_AT_ONCE) -> bytes | None:
    """Return what is in a plain file that is no link; None where there is none, or it is too large."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > most:
            return None
        return file.read(most)


class FileStamp:
    """Tells whether a file has changed since the last look: another one, another size or another time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: tuple[int, int, int] | None = None

    def changed(self) -> bool:
        """Look again."""
        now = _stamp(self.path)
        before, self.seen = self.seen, now
        return now != before

    @property
    def exists(self) -> bool:
        """Tell whether it was there at the last look."""
        return self.seen is not None

    @property
    def changed_at(self) -> float:
        """Return when it was written last, in seconds since 1970; 0 where it is not there."""
        return 0.0 if self.seen is None else self.seen[2] / 1e9


class LineTail:
    """The lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = FileStamp(path)
        self._identity: int | None = None
        self._offset = 0
        self._rest = b""
        self._behind = False

    def look(self) -> tuple[bool, list[bytes]]:
        """Return whether the file was begun anew, and the whole lines that came since the last look."""
        if not self._stamp.changed() and not self._behind:
            return False, []
        if self._stamp.seen is None:
            anew, self._offset, self._rest = self._offset > 0, 0, b""
            return anew, []
        identity, size, _ = self._stamp.seen
        anew = self._offset > 0 and (identity != self._identity or size < self._offset)
        if anew:
            self._offset, self._rest = 0, b""
        self._identity = identity
        content = self._read()
        self._offset += len(content)
        self._behind = self._offset < size and bool(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            raise DamagedFile(f"a line of {self.path.name} is longer than {_LONGEST_LINE:,} bytes")
        return anew, lines

    @property
    def changed_at(self) -> float:
        """Return when something was appended, in seconds since 1970; 0 where nothing is."""
        return self._stamp.changed_at

    @property
    def is_behind(self) -> bool:
        """Tell whether there is more to read at once."""
        return self._behind

    def _read(self) -> bytes:
        try:
            with opened(self.path) as file:
                file.seek(self._offset)
                return file.read(MOST_AT_ONCE)
        except OSError as problem:
            raise DamagedFile(f"{self.path.name} cannot be read: {problem.strerror}") from None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file that is no link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise DamagedFile(f"{path.name} is not a plain file")
        yield file


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        about = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns
