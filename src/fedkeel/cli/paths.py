"""Where runs go, and where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fedkeel.errors import StorageError

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
    """Yield the directories below a root that hold a run, in order of their names."""
    if not root.is_dir():
        raise StorageError(f"{root}: there is no such directory; runs are kept below runs/ by default")
    yield from sorted(path.parent for path in root.rglob("manifest.json"))
