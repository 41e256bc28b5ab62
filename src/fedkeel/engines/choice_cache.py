"""Engines chosen by measurement on this machine: one small file per kind of run, written once."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedkeel.files import cache_directory
from fedkeel.oracle import Oracle
from fedkeel.settings import RunSettings
from fedkeel.trees import described

_VERSION = 2  # of the files, and of how engines are measured


def fingerprint(settings: RunSettings, oracle: Oracle, candidates: Sequence[str]) -> str:
    """Return the key of a kind of run: model, shapes, cohort, machine and version; not the method."""
    federation, work = settings.federation, settings.work
    facts = {
        "form": _VERSION,
        "model": repr(settings.task.module),
        "task": settings.task.describe(),
        "layout": repr(oracle.layout),
        "sample": [described(federation.samples(0)[0]), repr(federation.transform)],
        "sizes": [int(federation.sizes.min()), int(federation.sizes.max()), work.batch_size],
        "augmented": federation.augment is not None,
        "clip": work.clip is not None,
        "cohort": settings.cohort_size,
        "machine": [platform.node(), platform.machine(), os.cpu_count(), torch.get_num_threads()],
        "torch": torch.__version__,
        "asked": list(candidates),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class ChoiceCache:
    """Choices kept in the user's cache directory. The first choice for a key stays."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_directory() / "engines"

    def read(self, key: str) -> dict[str, Any] | None:
        """Return the cached choice, None if there is none."""
        try:
            choice: dict[str, Any] = json.loads((self.path / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return choice

    def writable(self) -> bool:
        """Tell whether a choice could be kept."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                return True
        except OSError:
            return False

    def keep(self, key: str, choice: dict[str, Any]) -> dict[str, Any]:
        """Keep a choice and return the one that is kept: an older one where another process was first."""
        final = self.path / f"{key}.json"
        fresh = final.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(choice), encoding="utf-8")
        try:
            if self.read(key) is None:  # absent, or cut short by a crash
                final.unlink(missing_ok=True)
                os.link(fresh, final)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
        return self.read(key) or choice
