"""A small part of every row of `make torture` that is about files and configurations (see torture/)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).parents[1] / "torture"


@pytest.mark.slow(12)
@pytest.mark.parametrize(("name", "count"), [("damage", 60), ("disk", 12), ("configurations", 100)])
def test_a_small_part_of_a_row_holds(
    name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(TORTURE))
    for variable in ("FEDKEEL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
    row, harness = importlib.import_module(f"rows.{name}"), importlib.import_module("harness")
    tally = row.run(tmp_path, count, 1, harness.Progress(name))
    assert [f"{one.number}: {one.what}" for one in tally.failures] == []
    assert tally.tries >= count
    assert tally.refused > 0


def test_every_row_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TORTURE))
    harness = importlib.import_module("harness")
    for file in sorted((TORTURE / "rows").glob("[!_]*.py")):
        row = harness.as_row(importlib.import_module(f"rows.{file.stem}"))
        assert file.stem == row.NAME
        assert row.COUNT > 0
    assert "rows" in sys.modules
