"""Where runs go, and where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fedkeel.common.errors import ConfigError, StorageError
from fedkeel.common.jsonfiles import NotJson
from fedkeel.experiments import COMPARISON_FILE, OUTCOME_TEXT, STUDY_FILE
from fedkeel.running.run_reading import MANIFEST, METRICS

ROOT = Path("runs")


def fresh(name: str, now: datetime | None = None) -> Path:
    """Return a directory below runs/ that does not exist yet: the time and a name."""
    stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
    plain = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:40]
    path = ROOT / f"{stamp}-{plain}"
    count = 1
    while path.exists():
        count += 1
        path = ROOT / f"{stamp}-{plain}-{count}"
    return path


def run_directories(root: Path) -> Iterator[Path]:
    """Yield the directories below a root that hold a run, sorted; also one that has lost its manifest."""
    if not root.is_dir():
        raise StorageError(f"{root}: there is no such directory; runs are kept below runs/ by default")
    yield from sorted({path.parent for name in (MANIFEST, METRICS) for path in root.rglob(name)})


def studies_below(root: Path) -> list[Path]:
    """Return the directories below a root that hold a study, sorted; of nested ones the outermost."""
    found = {path.parent for name in (STUDY_FILE, COMPARISON_FILE, OUTCOME_TEXT) for path in root.rglob(name)}
    return sorted(path for path in found - {root} if found.isdisjoint(path.parents))


def refuse_columns(directory: Path, columns: str | None) -> None:
    """Refuse --columns of what has no table of methods or values."""
    if columns is not None and directory.exists():
        raise ConfigError(
            f"--columns {columns}: {directory} is no comparison or sweep and has no such table: leave it out"
        )


def refuse_directory(page: Path | None, option: str = "--page") -> None:
    """Refuse a directory where the file of a page is to be named."""
    if page is not None and page.is_dir():
        raise ConfigError(f"{option} {page}: a directory: name a file in it, as {page / 'page.html'}")


def why_unreadable(problem: Exception) -> str:
    """Say why a file of JSON cannot be used: the system's reason, or that it holds something else."""
    if isinstance(problem, OSError):
        return f"cannot be read ({problem.strerror})"
    return "is not JSON" if isinstance(problem, NotJson) else "holds other JSON"
