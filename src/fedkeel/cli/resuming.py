"""What all commands say that can be started again: how much is there, and how to go on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedkeel.errors import ConfigError, DataError, Stopped, TooFewClients
from fedkeel.progress import console
from fedkeel.studies import STUDY_FILE


def say_what_is_there(out: Path, done: int, total: int, what: str) -> None:
    """Say at the start how much of the work is done already; nothing where it is new."""
    if done:
        text = f"{done} of {total} {what} are there already in {out}"
        console(stderr=True).print(text, style="dim", markup=False, soft_wrap=True)


@contextmanager
def resumable(out: Path, new: list[Path] | None = None) -> Iterator[None]:
    """End an interrupted command with the line that goes on; a mistake leaves no `new` directory."""
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        raise Stopped(f"\n{str(stop) or 'stopped'}\ngo on with: {command_line(out)}") from None
    except TooFewClients as problem:
        problem.args = (f"{problem}\ngo on with: {command_line(out)}",)
        raise
    except (ConfigError, DataError):
        _remove(new or [])
        raise


def missing_directories(out: Path) -> list[Path]:
    """Return a directory and those above it that do not exist yet, the innermost first."""
    return [path for path in (out, *out.parents) if not path.exists()]


def _remove(new: list[Path]) -> None:
    """Remove new directories in which nothing is kept but the description of a study."""
    inner = sorted(new[0].rglob("*"), reverse=True) if new else []
    files = [path for path in inner if path.is_file()]
    if all(path.name == STUDY_FILE for path in files):
        for path in files:
            path.unlink()
        for path in (*inner, *new):
            with suppress(OSError):  # a file, or not empty
                path.rmdir()


def command_line(out: Path) -> str:
    """Return the line that was given, and where the work is kept."""
    words = sys.argv[1:]
    given = any(word == "--out" or word.startswith("--out=") for word in words)
    return shlex.join(["fedkeel", *words, *([] if given else ["--out", str(out)])])
