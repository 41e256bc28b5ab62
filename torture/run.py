"""Tries to break fedkeel, row by row, and writes what held: `make torture`, docs/torture.md.

torture/run.py                              every row to its full count
torture/run.py --rows kills damage          these rows
torture/run.py --rows kills --count 20      fewer tries; the table says so
torture/run.py --minutes 90                 no row begins or goes on after that
torture/run.py --rows kills --try 17        one try alone, as a failure names it; nothing is written
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests")]

import rows  # noqa: E402
import table  # noqa: E402
from harness import Progress, Row, Tally, as_row  # noqa: E402


def main() -> None:
    """Run rows; exit with 1 where one failed."""
    known = sorted(module.name for module in pkgutil.iter_modules(rows.__path__))
    options = _options(known)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, here and in children
    ended = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    failed = 0
    for name in options.rows or known:
        minutes = None if ended is None else (ended - time.monotonic()) / 60
        if minutes is not None and minutes <= 0:
            print(f"{name}: not begun, the minutes are over", file=sys.stderr)
            continue
        failed += _run(as_row(importlib.import_module(f"rows.{name}")), minutes, options)
    sys.exit(1 if failed else 0)


def _run(row: Row, minutes: float | None, options: argparse.Namespace) -> int:
    """Run a row and keep what it found; return how many tries failed."""
    count = options.count or row.COUNT
    progress = Progress(row.NAME, minutes, options.only)
    with tempfile.TemporaryDirectory(prefix=f"torture-{row.NAME}-") as scratch:
        tally = row.run(Path(scratch), count, options.seed, progress)
    found = _found(row, tally, time.monotonic() - progress.started, options)
    progress.say(f"{tally.tries} tries: {tally.exact} exact, {tally.refused} refused, {tally.failed} failed")
    for one in found["failures"]:
        progress.say(f"FAILED {one['repeat']}\n    {one['what']}")
    if options.only is None:
        table.write(table.read(options.out) | {row.NAME: found}, options.out)
    return tally.failed


def _found(row: Row, tally: Tally, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    again = f"torture/run.py --rows {row.NAME} --seed {options.seed} --try"
    return {
        "fault": row.FAULT,
        "must_hold": row.MUST_HOLD,
        "count": row.COUNT,
        "tries": tally.tries,
        "exact": tally.exact,
        "refused": tally.refused,
        "failed": tally.failed,
        "notes": tally.notes,
        "failures": [{"repeat": f"{again} {one.number}", "what": one.what} for one in tally.failures],
        "seed": options.seed,
        "seconds": round(seconds, 1),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "version": _version(),
    }


def _version() -> str:
    """Return fedkeel's version and the commit that was tried."""
    from fedkeel.common.version import __version__  # noqa: PLC0415  the package is imported after the options are read

    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return f"{__version__} ({commit})" if commit else __version__


def _options(known: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Try to break fedkeel, and write what held.")
    parser.add_argument("--rows", nargs="+", choices=known, help="these rows; all without it")
    parser.add_argument("--count", type=int, help="this many tries per row instead of the full count")
    parser.add_argument("--seed", type=int, default=0, help="what the tries are drawn from")
    parser.add_argument("--minutes", type=float, help="end after so many minutes")
    parser.add_argument("--try", type=int, dest="only", help="repeat this try alone; nothing is written")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "docs" / "torture.json", help="where results are kept"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
