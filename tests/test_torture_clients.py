"""A small part of every row of `make torture` that is about clients, workers, signals and divergence."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow(18)
@pytest.mark.parametrize(("name", "count"), [("clients", 6), ("divergence", 8), ("workers", 2)])
def test_a_small_part_of_a_row_holds(
    name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "torture"))
    row, harness = importlib.import_module(f"rows.{name}"), importlib.import_module("harness")
    tally = row.run(tmp_path, count, 1, harness.Progress(name))
    assert [f"{one.number}: {one.what}" for one in tally.failures] == []
    assert tally.tries == count
    assert tally.exact > 0


@pytest.mark.slow(16)
def test_signals_end_a_run_where_nothing_is_lost(tmp_path: Path) -> None:
    """In a process of its own: the row forks."""
    line = [sys.executable, str(ROOT / "torture" / "run.py"), "--rows", "signals", "--count", "5"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [*line, "--out", str(tmp_path / "found.json")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "5 tries: 5 exact, 0 refused, 0 failed" in done.stderr
