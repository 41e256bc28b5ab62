"""Run directories: what a run leaves on disk, complete or absent at every instant.

    experiment.toml   the experiment            manifest.json    versions, seeds, hashes, every variant
    metrics.jsonl     one row per round           timings.jsonl    what may differ between two equal runs
    checkpoints/      the last two              model.safetensors  the final model
    clients.jsonl     a row per client, where   best.safetensors   that of the best round, where it is another
                      they have test sets

No pickle is read or written. A lock keeps a second process out.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkeel.columns import LOST_WORKERS
from fedkeel.errors import StorageError
from fedkeel.files import (
    json_text,
    read_json_lines,
    storage_errors,
    sync_directory,
    temporary_name,
    write_durably,
)

TIMINGS = ("seconds", LOST_WORKERS)  # what may differ between two equal runs; no worker is lost in most
_RESTORE = "restore it, or start anew in another directory"
CLIENTS_FILE = "clients.jsonl"


class RunDirectory:
    """A run's directory, held by this process alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            _refuse_strangers(path)
            self._lock = (path / ".lock").open("w")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.close()
                raise StorageError(
                    f"{path}: another process is working in this run directory: wait, or choose another"
                ) from None

    def close(self) -> None:
        """Let others in."""
        self._lock.close()

    @property
    def holds_run(self) -> bool:
        """Tell whether a run was begun here."""
        return (self.path / "manifest.json").exists()

    def describe(self, experiment: str, manifest: Mapping[str, Any]) -> None:
        """Write what the run is. The manifest comes last: it marks the run as begun."""
        with storage_errors(self.path):
            write_durably(self.path / "experiment.toml", experiment.encode())
            write_durably(self.path / "manifest.json", json_text(manifest, indent=2).encode())

    def finish(self, manifest: Mapping[str, Any], files: Mapping[str, bytes | None]) -> None:
        """Write the files of a run that has ended (None: there is none), then the manifest that says so."""
        with storage_errors(self.path):
            for name, content in files.items():
                if content is None:
                    (self.path / name).unlink(missing_ok=True)
                else:
                    write_durably(self.path / name, content)
            write_durably(self.path / "manifest.json", json_text(manifest, indent=2).encode())

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the run that is here."""
        return read_manifest(self.path)

    def append(self, row: Mapping[str, Any], spent: Mapping[str, float]) -> None:
        """Add a round's row; timings, and the seconds of evaluation and probes, go to a file of their own."""
        timing = {"round": row["round"], **{name: row[name] for name in TIMINGS if name in row}, **spent}
        lasting = {name: value for name, value in row.items() if name not in TIMINGS}
        with storage_errors(self.path):
            for name, part in (("metrics.jsonl", lasting), ("timings.jsonl", timing)):
                with (self.path / name).open("a") as file:
                    file.write(json_text(part) + "\n")

    def keep_rows(self, count: int) -> list[dict[str, Any]]:
        """Cut the metrics after the first `count` rounds (and a torn last line) and return them."""
        rows = read_rows(self.path)[:count]
        if len(rows) < count:
            raise StorageError(
                f"{self.path / 'metrics.jsonl'}: {len(rows)} rows, but the checkpoint was made after round "
                f"{count}: the file was damaged; restore it or start anew in another directory"
            )
        lasting = [{name: value for name, value in row.items() if name not in TIMINGS} for row in rows]
        timings = [timing for timing in read_timings(self.path) if timing["round"] < count]
        with storage_errors(self.path):
            for name, kept in (("metrics.jsonl", lasting), ("timings.jsonl", timings)):
                write_durably(self.path / name, "".join(json_text(row) + "\n" for row in kept).encode())
        return rows

    def sync_rows(self) -> None:
        """Make the rows durable, before a checkpoint counts on them."""
        with storage_errors(self.path):
            sync_directory(self.path)
            for name in ("metrics.jsonl", "timings.jsonl"):
                if (self.path / name).exists():
                    with (self.path / name).open("a") as file:
                        os.fsync(file.fileno())


def _refuse_strangers(path: Path) -> None:
    """Leave a directory alone that holds something else than a run."""
    names = ("experiment.toml", "manifest.json")
    if (path / names[1]).exists():
        return
    ours = {".lock", names[0], *(temporary_name(path / name).name for name in names)}
    strangers = sorted(p.name for p in path.iterdir() if p.name not in ours)
    if strangers:
        raise StorageError(
            f"{path}: holds {strangers[0]} and no run of fedkeel: choose an empty or new directory"
        )


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of the run in a directory."""
    try:
        manifest: dict[str, Any] = json.loads((path / "manifest.json").read_text())
    except FileNotFoundError:
        raise StorageError(
            f"{path}: no run here (manifest.json is missing); `fedkeel runs` lists runs"
        ) from None
    except NotADirectoryError:
        raise StorageError(f"{path}: a file, not the directory of a run; `fedkeel runs` lists runs") from None
    except (OSError, ValueError) as problem:
        raise StorageError(f"{path / 'manifest.json'}: cannot be read: {problem}: {_RESTORE}") from None
    if not isinstance(manifest, dict):
        raise StorageError(f"{path / 'manifest.json'}: not the manifest of a run: {_RESTORE}")
    return manifest


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return a run's rows with their timings, up to the first torn or missing line."""
    timings = {row["round"]: row for row in read_timings(path)}
    rows = []
    for index, row in enumerate(read_json_lines(path / "metrics.jsonl")):
        if row.get("round") != index:
            break
        timing = {"seconds": 0.0, **timings.get(index, {})}
        rows.append({**row, **{name: timing[name] for name in TIMINGS if name in timing}})
    return rows


def read_clients(path: Path) -> list[dict[str, Any]]:
    """Return how a run's last model does client by client; nothing where that was not evaluated."""
    return list(read_json_lines(path / CLIENTS_FILE))


def read_timings(path: Path) -> list[dict[str, Any]]:
    """Return what each round of a run took: `seconds` in all, of which `evaluation` and `probes`."""
    return list({row["round"]: row for row in read_json_lines(path / "timings.jsonl")}.values())
