"""Which runs lie below a directory: links are not followed, and a search has its limits."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fedkeel.directories.kinds import planned_runs
from fedkeel.experiments import COMPARISON_FILE, STUDY_FILE
from fedkeel.web.tailing import read_small

MOST_RUNS = 500
_MOST_DIRECTORIES = 20_000
_DEEPEST = 8


class FoundGroup(NamedTuple):
    """A directory of several runs: what it is, and how many runs it will have, where that is known."""

    path: Path
    kind: str
    planned: int | None = None


class FoundRun(NamedTuple):
    """The directory of a run and the comparison, sweep or study it belongs to, if any."""

    path: Path
    group: FoundGroup | None


class FoundRuns(NamedTuple):
    """The runs below a directory, and whether there was more than is looked at."""

    runs: list[FoundRun]
    cut: bool


def find_runs(root: Path) -> FoundRuns:
    """Return the runs below a directory; a run's own directories are not searched."""
    runs: list[FoundRun] = []
    waiting: list[tuple[Path, FoundGroup | None, int]] = [(root, None, 0)]
    seen = 0
    while waiting:
        path, group, depth = waiting.pop()
        seen += 1
        if len(runs) >= MOST_RUNS or seen > _MOST_DIRECTORIES:
            return FoundRuns(runs, cut=True)
        names, inner = _entries(path)
        if "manifest.json" in names:
            runs.append(FoundRun(path, group))
            continue
        here = group or _group(path, names)
        if depth < _DEEPEST:
            waiting += [(path / name, here, depth + 1) for name in reversed(inner)]
    return FoundRuns(runs, cut=False)


def _group(path: Path, names: set[str]) -> FoundGroup | None:
    """Return what a directory of several runs is; None where it is none, or its description is damaged."""
    try:
        if STUDY_FILE in names:
            described = json.loads(read_small(path / STUDY_FILE) or b"")
            return FoundGroup(
                path, str(described["study"]), _planned(path, (path / STUDY_FILE).stat().st_mtime_ns)
            )
        if COMPARISON_FILE in names:
            return FoundGroup(path, "comparison", _planned(path, 0))
    except (ValueError, KeyError, TypeError, RecursionError, OSError):
        pass
    return None


@lru_cache(maxsize=MOST_RUNS)
def _planned(path: Path, stamp: int) -> int | None:
    """Return how many runs a study has; `stamp`: when its plan was written."""
    return planned_runs(path)


def _entries(path: Path) -> tuple[set[str], list[str]]:
    """Return the names of the files and, in order, of the directories in a directory."""
    files, directories = set(), []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                else:
                    files.add(entry.name)
    except OSError:
        return set(), []
    return files, sorted(directories)
