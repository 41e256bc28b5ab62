"""The peers' virtual environments: one each, outside the repository, made once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

REQUIREMENTS = {
    "pfl": ["pfl[pytorch]>=0.6,<0.7"],
    "fedlab": ["fedlab>=1.3,<1.4"],
    "flwr": ["flwr[simulation]>=1.41,<1.43", "torch"],
}
_PINNED = "torch==2.13.0\n"


class Unavailable(Exception):
    """A peer's environment could not be made; the message says why."""


def cache_directory() -> Path:
    """Return where the environments live."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedkeel" / "bench"


def python_of(peer: str, *, install: bool, report: Callable[[str], None]) -> Path:
    """Return the interpreter of a peer's environment; make the environment where it is missing."""
    place = cache_directory() / peer
    wanted = "\n".join([*REQUIREMENTS[peer], _PINNED])
    stamp = place / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return place / "bin" / "python"
    if not install:
        raise Unavailable("its environment is not installed yet: run once without --quick")
    report(f"{peer}: installing into {place} (minutes, once)")
    constraints = place / "constraints.txt"
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    constraints.write_text(_PINNED)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "-c", str(constraints)]
    _run([*pip, *REQUIREMENTS[peer]])
    stamp.write_text(wanted)
    return place / "bin" / "python"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        last = (errors or done.stderr.splitlines() or ["no message"])[-1]
        raise Unavailable(f"cannot be installed: {last.removeprefix('ERROR: ')[:300]}")
