"""Run directories: what a run leaves on disk, complete or absent at every instant.

    experiment.toml   the experiment            manifest.json    versions, seeds, hashes, every variant
    metrics.jsonl     one row per round           timings.jsonl    what may differ between two equal runs
    checkpoints/      the last two              model.safetensors  the final model
    metrics.jsonl.gz  a copy of the rows, up    best.safetensors   that of the best round, where it is another
                      to the last checkpoint    clients.jsonl    a row per client, where they have test sets
    interruption.json what ended it before its time, if anything

No pickle is read or written. A lock keeps a second process out; it says which process holds it. Every file is
tied to the run and protected by a checksum: the manifest by its own, which covers the experiment and the
hashes of the models; rows by one in each line; checkpoints and their memories by theirs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedkeel.common.errors import StorageError
from fedkeel.common.files import (
    make_directory,
    open_for_appending,
    open_lock,
    storage_errors,
    sync,
    sync_directory,
    temporary_name,
    write_durably,
)
from fedkeel.common.jsonfiles import json_text, sealed
from fedkeel.running.row_files import RunKey, compressed, line_of
from fedkeel.running.run_reading import (
    CLIENTS_FILE,
    COPY,
    EXPERIMENT,
    MANIFEST,
    METRICS,
    TIMINGS,
    TIMINGS_FILE,
    check_end,
    count_rows,
    has_end_file,
    is_whole,
    read_clients,
    read_end_file,
    read_experiment,
    read_manifest,
    read_rows,
    read_timings,
    timing_lines,
    whole_rows,
    with_timings,
)

__all__ = [
    "CLIENTS_FILE",
    "RunDirectory",
    "check_end",
    "count_rows",
    "has_end_file",
    "is_held",
    "is_whole",
    "read_clients",
    "read_end_file",
    "read_experiment",
    "read_manifest",
    "read_rows",
    "read_timings",
]

INTERRUPTION_FILE, LOCK_FILE = "interruption.json", ".lock"
_LONGEST_NAME = 300  # bytes of a lock that are read


class RunDirectory:
    """A run's directory, held by this process alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = self.timings_key = RunKey("", older=False)  # set them before rows are written or read
        self._rows = hashlib.sha256()  # of all lines so far
        self._uncopied: list[bytes] = []
        with storage_errors(path):
            make_directory(path)
            _refuse_strangers(path)
            self._lock = open_lock(path / LOCK_FILE)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.close()
                raise StorageError(
                    f"{path}: another process is working in this run directory: wait, or choose another"
                ) from None
            self._say_who(f"{platform.node()} {os.getpid()}")

    def close(self) -> None:
        """Let others in; closing it again does nothing."""
        if not self._lock.closed:
            self._say_who("")
            self._lock.close()

    def _say_who(self, text: str) -> None:
        """Write into the lock who holds it, for those who only look; a full disk is no reason to stop."""
        with suppress(OSError):
            os.ftruncate(self._lock.fileno(), 0)
            os.pwrite(self._lock.fileno(), text.encode(), 0)

    @property
    def holds_run(self) -> bool:
        """Tell whether a run was begun here."""
        return (self.path / MANIFEST).exists()

    @property
    def rows_sha256(self) -> str:
        """Return the hash of all rows that were written."""
        return self._rows.hexdigest()

    def describe(self, manifest: Mapping[str, Any]) -> None:
        """Write what the run is: the manifest, which marks it as begun and has a copy of the experiment.

        At no instant is there an experiment.toml that the manifest does not know.
        """
        experiment = manifest["experiment"].encode()
        with storage_errors(self.path):
            file = self.path / EXPERIMENT
            if file.exists() and file.read_bytes() != experiment:
                file.unlink()
                sync_directory(self.path)
            self._write_manifest(manifest)
            write_durably(file, experiment)

    def finish(self, manifest: dict[str, Any], files: Mapping[str, bytes | None]) -> None:
        """Write the files of a run that has ended (None: there is none), then the manifest that says so."""
        with storage_errors(self.path):
            for name, content in files.items():
                if content is None:
                    (self.path / name).unlink(missing_ok=True)
                else:
                    write_durably(self.path / name, content)
            there = {name: content for name, content in files.items() if content is not None}
            manifest["end"]["sha256"] = {
                name: hashlib.sha256(content).hexdigest() for name, content in there.items()
            }
            self._write_manifest(manifest)

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest; that of an older run stays without a seal, as its other files are."""
        table = sealed(manifest) if "format" in manifest else manifest
        write_durably(self.path / MANIFEST, json_text(table, indent=2).encode())

    def interrupted(self, kind: str, message: str) -> None:
        """Write what ends the run before its time: "stopped", "diverged" or "failed", and the message."""
        with storage_errors(self.path):
            content = json_text(sealed({"kind": kind, "message": message}))
            write_durably(self.path / INTERRUPTION_FILE, content.encode())

    def goes_on(self) -> None:
        """Remove what is said of an interruption."""
        if self.path.joinpath(INTERRUPTION_FILE).exists():
            with storage_errors(self.path):
                self.path.joinpath(INTERRUPTION_FILE).unlink()

    def restore_experiment(self) -> None:
        """Check the experiment of the run that is here; write it again where it is missing."""
        text = read_experiment(self.path)
        with storage_errors(self.path):
            if not (self.path / EXPERIMENT).exists():
                write_durably(self.path / EXPERIMENT, text.encode())

    def append(self, row: Mapping[str, Any], spent: Mapping[str, float]) -> None:
        """Add a round's row; timings, and the seconds of evaluation and probes, go to a file of their own.

        They go first: a row that is there has its timings.
        """
        timing = {"round": row["round"], **{name: row[name] for name in TIMINGS if name in row}, **spent}
        line = line_of({name: value for name, value in row.items() if name not in TIMINGS}, self.key)
        with storage_errors(self.path):
            for name, content in ((TIMINGS_FILE, line_of(timing, self.timings_key)), (METRICS, line)):
                with open_for_appending(self.path / name) as file:
                    file.write(content)
        self._rows.update(line)
        self._uncopied.append(line)

    def keep_rows(self, count: int, sha256: str | None) -> list[dict[str, Any]]:
        """Cut the metrics after the first `count` rounds, mend what was damaged before, and return the rows.

        `sha256` is the hash of these rows as the checkpoint has it.
        """
        kept = whole_rows(self.path, self.key, count, sha256)
        timings = timing_lines(self.path, self.timings_key).lines
        with storage_errors(self.path):
            lines = [line.content for line in kept]
            self._rows, self._uncopied = hashlib.sha256(b"".join(lines)), []
            write_durably(self.path / METRICS, b"".join(lines))
            write_durably(self.path / COPY, compressed(lines))
            spent = [line.content for round, line in sorted(timings.items()) if round < count]
            write_durably(self.path / TIMINGS_FILE, b"".join(spent))
        return with_timings(kept, timings, self.path)

    def sync_rows(self) -> None:
        """Make the rows durable, and copy the new ones, before a checkpoint counts on them."""
        with storage_errors(self.path):
            sync_directory(self.path)
            for name in (METRICS, TIMINGS_FILE):
                if (self.path / name).exists():
                    with open_for_appending(self.path / name) as file:
                        sync(file)
            if self._uncopied:
                with open_for_appending(self.path / COPY) as file:
                    file.write(compressed(self._uncopied))
                    sync(file)
                self._uncopied = []


def _refuse_strangers(path: Path) -> None:
    """Leave a directory alone that holds something else than a run."""
    if (path / MANIFEST).exists():
        return
    ours = {LOCK_FILE, EXPERIMENT, *(temporary_name(path / name).name for name in (EXPERIMENT, MANIFEST))}
    strangers = sorted(p.name for p in path.iterdir() if p.name not in ours)
    if strangers:
        raise StorageError(
            f"{path}: holds {strangers[0]} and no run of fedkeel: choose an empty or new directory"
        )


def is_held(path: Path) -> bool:
    """Tell whether a process of this machine is working in a run directory, or one of another may be.

    The lock itself is not touched: to try it would keep a run out that starts at that instant.
    """
    try:
        with (path / LOCK_FILE).open("rb") as file:
            node, _, number = file.read(_LONGEST_NAME).decode(errors="replace").rpartition(" ")
        if not (number.isdigit() and int(number)):
            return False
        if node == platform.node():
            os.kill(int(number), 0)
    except PermissionError:  # it is somebody else's
        return True
    except (OSError, OverflowError):
        return False
    return True
