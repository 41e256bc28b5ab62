"""Write what the recorded lines give anew: a changed outcome is a commit of its own, with its reason."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
sys.path.insert(0, str(Path(__file__).parents[1]))

from recorded.lines import LINES, OUTPUTS, Session, file_text

warnings.simplefilter("ignore")
with tempfile.TemporaryDirectory() as scratch:
    os.environ["XDG_CACHE_HOME"] = f"{scratch}/cache"
    made = {
        name: part
        for entry, parts in Session(Path(scratch) / "here").play(LINES)
        for name, part in parts.items()
    }
for old in OUTPUTS.glob("*"):
    old.unlink()
for name, outcome in made.items():
    (OUTPUTS / name).write_text(file_text(outcome))
print(f"{len(LINES)} lines, {len(made)} files in {OUTPUTS}")
