"""Signals that ask a run to end."""

from __future__ import annotations

import subprocess
import sys

import pytest

# the extension module _decimal imports a module of Python's while it is itself imported: there a signal comes
SCRIPT = """
import os, signal, sys, time
from fedkeel.common import interrupts

class Signals:
    def find_spec(self, name, path=None, target=None):
        if name == "numbers":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep({seconds})

interrupts._IMPORT_SECONDS = {patience}
sys.modules.pop("_decimal", None), sys.modules.pop("numbers", None)
sys.meta_path.insert(0, Signals())
try:
    with interrupts.stoppable():
        import _decimal
        time.sleep(10)
except interrupts.Interrupted as stop:
    print(stop.name, "_decimal" in sys.modules)
except BaseException as problem:
    print(type(problem).__name__, "_decimal" in sys.modules)
"""


@pytest.mark.parametrize(
    ("seconds", "patience", "told"),
    [(0.1, 10.0, "SIGINT True"), (10.0, 0.2, "SIGINT False")],
    ids=["waits", "not for ever"],
)
def test_a_signal_while_an_extension_module_is_imported_waits_for_its_end(
    seconds: float, patience: float, told: str
) -> None:
    script = SCRIPT.format(seconds=seconds, patience=patience)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split("\n")[0] == told
