"""Signals that ask a run to end."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import pytest

from fedkeel.common.interrupts import Interrupted, stoppable

AMID = """
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
time.sleep(0.2)
whole = True
"""


def test_a_signal_amid_an_import_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "amid_an_import.py").write_text(AMID)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Interrupted, match="SIGINT"), stoppable():
        _import_and_wait("amid_an_import")
    assert sys.modules.pop("amid_an_import").whole


def _import_and_wait(name: str) -> None:
    importlib.import_module(name)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.01)


def test_an_import_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "without_end.py").write_text(AMID.replace("time.sleep(0.2)", "time.sleep(30)"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("fedkeel.common.interrupts._IMPORT_SECONDS", 0.1)
    with pytest.raises(Interrupted, match="SIGINT"), stoppable():
        importlib.import_module("without_end")
    assert "without_end" not in sys.modules


def test_what_is_imported_by_an_import_can_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that trains while it is imported, as under pytest: its own import does not count."""
    (tmp_path / "trains.py").write_text(
        "import os, signal, time\n"
        "from fedkeel.common.interrupts import Interrupted, stoppable\n"
        "try:\n"
        "    with stoppable():\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.05)\n"
        "        ended = False\n"
        "except Interrupted:\n"
        "    ended = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.import_module("trains").ended
    del sys.modules["trains"]
