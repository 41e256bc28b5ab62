"""The user's script in a worker process.

A worker imports the script only when something it is sent was defined there. A script that trains as soon as
it is imported would then train in every worker: `refuse_unguarded` stops it and says what is missing.
"""

from __future__ import annotations

import os
import sys
from multiprocessing import process, spawn
from typing import NamedTuple

from fedkeel.errors import ConfigError


class Unguarded(SystemExit):
    """The script of the main process trains while a worker imports it."""


class _Script:
    """In a worker: how the main process's script is imported, until it is, and whether that is under way."""

    source: dict[str, str] | None = None
    importing = False


def main_module() -> dict[str, str]:
    """Say how another process can import this one's script, as `multiprocessing.spawn.prepare` takes it.

    Empty in interactive sessions, whose names no other process can import.
    """
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    if path is None:
        return {}
    path = os.path.join(process.ORIGINAL_DIR or "", path)  # type: ignore[attr-defined]
    return {"init_main_from_path": path} if os.path.exists(path) else {}


class Surroundings(NamedTuple):
    """Where the main process finds modules and files, and its script."""

    path: list[str]
    argv: list[str]
    directory: str
    script: dict[str, str]

    @classmethod
    def now(cls) -> Surroundings:
        """Return those of this process."""
        return cls(sys.path, sys.argv, os.getcwd(), main_module())

    def take_over(self) -> None:
        """Make a worker find the same; the script is imported when it is first needed."""
        sys.path[:], sys.argv[:] = self.path, self.argv
        os.chdir(self.directory)
        _Script.source = self.script


def import_main() -> None:
    """Import the main process's script into this worker, once; nothing elsewhere."""
    source, _Script.source = _Script.source, None
    if not source:
        return
    name = next(iter(source.values()))
    _Script.importing = True
    try:
        spawn.prepare(source)
    except Unguarded:
        raise ConfigError(
            f"{name} trains as soon as it is imported, and worker processes have to import it for what is "
            'defined there: put the training under  if __name__ == "__main__":'
        ) from None
    except (Exception, SystemExit) as problem:
        raise ConfigError(
            f"a worker process could not import {name} ({type(problem).__name__}: {problem}): "
            'put all but definitions under  if __name__ == "__main__":'
        ) from problem
    finally:
        _Script.importing = False


def refuse_unguarded() -> None:
    """Stop a training that begins while a worker imports the main process's script."""
    if _Script.importing:
        raise Unguarded
