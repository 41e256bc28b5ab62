"""What all commands say that can be started again: how much is there, and how to go on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkeel.errors import Stopped
from fedkeel.progress import console


def say_what_is_there(out: Path, done: int, total: int, what: str) -> None:
    """Say at the start how much of the work is done already; nothing where it is new."""
    if done:
        text = f"{done} of {total} {what} are there already in {out}"
        console(stderr=True).print(text, style="dim", markup=False, soft_wrap=True)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """End an interrupted command with the line that goes on."""
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        raise Stopped(f"\n{str(stop) or 'stopped'}\ngo on with: {_line(out)}") from None


def _line(out: Path) -> str:
    """Return the line that was given, and where the work is kept."""
    words = sys.argv[1:]
    given = any(word == "--out" or word.startswith("--out=") for word in words)
    return shlex.join(["fedkeel", *words, *([] if given else ["--out", str(out)])])
