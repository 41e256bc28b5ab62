"""Engines chosen by measurement on this machine: one small file per kind of run, written once."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ConfigDict, Field

from fedkeel.common.files import cache_directory, read_whole
from fedkeel.common.jsonfiles import Shape, fitting, parse_object
from fedkeel.core.oracle import Oracle
from fedkeel.settings.options import Threads
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.trees import described

_VERSION = 3  # of the files, and of how engines are measured


def fingerprint(settings: RunSettings, oracle: Oracle, asked: Sequence[str]) -> str:
    """Return the key of a kind of run: model, shapes, cohort, machine and version; not the method.

    `asked` are the engines in question, and what else decides between them.
    """
    federation, work = settings.federation, settings.work
    facts = {
        "form": _VERSION,
        "model": repr(settings.task.module),
        "task": settings.task.describe(),
        "layout": repr(oracle.layout),
        "sample": [described(federation.samples(0)[0]), repr(federation.transform)],
        "sizes": [int(federation.sizes.min()), int(federation.sizes.max())],
        "minibatches": sorted(
            {size for samples in set(federation.sizes.tolist()) for size in work.epoch(samples)}
        ),
        "optimizer": work.optimizer is not None,
        "augmented": federation.augment is not None,
        "clip": work.clip is not None,
        "cohort": settings.cohort_size,
        "machine": [platform.node(), platform.machine(), os.cpu_count(), torch.get_num_threads()],
        "torch": torch.__version__,
        "asked": list(asked),
    }
    if work.momentum or work.varies_within_round:  # absent otherwise: earlier choices stay known
        facts["steps"] = [bool(work.momentum), work.varies_within_round]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class _ChoiceShape(Shape):
    """What a file must hold to be a choice."""

    model_config = ConfigDict(extra="forbid")

    engine: Literal["serial", "stacked", "stacked-uncompiled", "processes"]
    threads: Threads | None = None
    reason: str = ""
    figures: dict[str, float | str] = Field(default_factory=dict)


class ChoiceCache:
    """Choices kept in the user's cache directory. The first choice for a key stays."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_directory() / "engines"

    def read(self, key: str) -> dict[str, Any] | None:
        """Return the cached choice, None if there is none or its file is damaged."""
        try:
            return fitting(parse_object(read_whole(self.path / f"{key}.json")), _ChoiceShape)
        except (OSError, ValueError):
            return None

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
