"""Run directories for tests of the live page, written by hand: no training is needed to look at them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedkeel.running.run_directory import LOCK_FILE


def row_of(round: int, **values: Any) -> dict[str, Any]:
    usual = {"round": round, "stage": 0, "cohort": [0, 1, 2], "loss": 1 / (round + 1), "train_loss": 1.0}
    return usual | {"accuracy": 0.5, "lr": 0.1, "gradients": 4, "bytes_down": 100, "bytes_up": 100} | values


class WrittenRun:
    """A run's directory that a test writes as a run would."""

    def __init__(self, path: Path, *, method: str = "FedAvg", seed: int = 0, rounds: int = 100) -> None:
        self.path, self.done = path, 0
        path.mkdir(parents=True)
        self.manifest = {"identity": {"method": method, "seed": seed}, "rounds": rounds, "data": {}}
        (path / "experiment.toml").write_text(f"method = {json.dumps(method)}\n")
        self.write_manifest()

    def write_manifest(self) -> None:
        (self.path / "manifest.json").write_text(json.dumps(self.manifest))

    def is_worked_on(self) -> WrittenRun:
        """Let it look as if this process trained it."""
        (self.path / LOCK_FILE).write_text(f"{platform.node()} {os.getpid()}")
        return self

    def add(self, rows: int | Iterable[dict[str, Any]], seconds: float = 0.1) -> WrittenRun:
        """Append rounds."""
        given = [row_of(self.done + index) for index in range(rows)] if isinstance(rows, int) else list(rows)
        with (self.path / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in given)
        with (self.path / "timings.jsonl").open("a") as file:
            file.writelines(json.dumps({"round": row["round"], "seconds": seconds}) + "\n" for row in given)
        self.done += len(given)
        return self

    def finish(self) -> WrittenRun:
        self.manifest["end"] = {"rounds": self.done, "stopped_by": None, "best": None}
        self.write_manifest()
        (self.path / LOCK_FILE).write_text("")
        return self
