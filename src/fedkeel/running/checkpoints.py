"""Checkpoints: safetensors and JSON, each with its SHA-256, whole or absent at every instant.

A checkpoint is a directory that is filled under a temporary name, synced and renamed. It holds the server and
a segment: the memories of the clients that changed since the one before; `checkpoint.json` lists the segments
that are needed, and of a client in several the newest holds. A new segment takes over older ones that are not
much larger than itself, so the cost of a checkpoint follows the clients that took part, never the population,
and all segments together stay below twice the memories there are. The checkpoint after a run's last round
holds the memories only where they are asked for, and says how many it leaves out.

`checkpoint.json` says which run it is of; one of another run, or under another round's name, is passed over.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedkeel.common.errors import StorageError
from fedkeel.common.files import create, read_whole, refuse_link, storage_errors, sync, sync_directory
from fedkeel.common.jsonfiles import Shape, fitting, parse_object
from fedkeel.common.older import file_now, index_now
from fedkeel.running import segments
from fedkeel.running.row_files import RunKey
from fedkeel.running.store import Store

_SERVER, _STATES, _INDEX = "server.safetensors", "client_states.safetensors", "checkpoint.json"
_KEPT = 2


class Segment(NamedTuple):
    """A checkpoint's file of memories: in which folder, its hash, whose memories."""

    folder: str
    sha256: str
    clients: np.ndarray


class _IndexShape(Shape):
    """What `checkpoint.json` must hold."""

    values: dict[str, Any]
    sha256: dict[str, str]
    segments: list[list[str | int]]
    not_kept: int = 0
    run: str | None = None  # this and the round: None in those that are older
    round: int | None = None


class Loaded(NamedTuple):
    """A checkpoint as read: plain values, named tensors, and the client states one after another.

    `not_kept` is the number of memories that there were and that it does not hold.
    """

    values: dict[str, Any]
    tensors: dict[str, Tensor]
    memories: Iterator[tuple[int, dict[str, Tensor]]]
    not_kept: int


class Checkpoints:
    """The checkpoints of one run directory."""

    def __init__(self, path: Path, run: RunKey | None = None) -> None:
        self.path, self.run = path / "checkpoints", run  # None: of any run
        self._segments: list[Segment] = []
        self.latest: str | None = None

    def write(
        self,
        round: int,
        values: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        store: Store,
        *,
        memories: bool = True,
    ) -> None:
        """Write the checkpoint after `round` rounds, with the client states or without."""
        name = f"round-{round:08d}"
        if name == self.latest:
            return
        dropped, changed = store.changes()
        moved, kept = _absorb([] if dropped else self._segments, changed) if memories else (set(), [])
        with storage_errors(self.path):
            temporary = self._fresh(f".{name}.tmp")
            hashes = {_SERVER: _write(temporary / _SERVER, save(_plain(tensors)))}
            if moved:
                sha256 = segments.write(temporary / _STATES, store, moved)
                kept = [*kept, Segment(name, sha256, np.array(sorted(moved)))]
            listed = [[segment.folder, segment.sha256, len(segment.clients)] for segment in kept]
            not_kept = 0 if memories else len(store)
            index = {"values": dict(values), "sha256": hashes, "segments": listed, "not_kept": not_kept}
            index |= {"round": round, "run": "" if self.run is None else self.run.sha256}
            _write(temporary / _INDEX, json.dumps({**index, "own": _digest(index)}).encode())
            sync_directory(temporary)
            shutil.rmtree(self.path / name, ignore_errors=True)  # a damaged one that was passed over
            os.replace(temporary, self.path / name)
            sync_directory(self.path)
            self._segments, self.latest = kept, name
            store.mark_saved()
            self._prune(_KEPT)

    def finish(self, *, goes_on: bool) -> None:
        """Remove what nothing reads of a run that has ended: it keeps one checkpoint, two if it may go on."""
        with storage_errors(self.path):
            self._prune(_KEPT if goes_on else 1)

    def read(self, report: Callable[[str], None]) -> Loaded | None:
        """Return the newest whole checkpoint; damaged ones are reported and passed over."""
        with storage_errors(self.path):
            refuse_link(self.path)
        for unfinished in self.path.glob(".*.tmp"):
            shutil.rmtree(unfinished, ignore_errors=True)
        folders = sorted((p for p in self.path.glob("round-*") if p.is_dir()), reverse=True)
        problems = []
        for folder in folders:
            try:
                loaded = self._read(folder)
            except (OSError, ValueError, KeyError, SafetensorError) as problem:
                problems.append(f"{folder.name}: {problem}")
                report(f"{folder}: damaged ({problem}); going back to the checkpoint before")
                continue
            return loaded
        if folders:
            raise StorageError(
                f"{self.path}: none of {len(folders)} checkpoints can be used ({problems[0]}): restore one, "
                "or start anew in another directory"
            )
        return None

    def _read(self, folder: Path) -> Loaded:
        index = parse_object(read_whole(folder / _INDEX))
        if index.pop("own", None) != _digest(index):
            raise ValueError(f"{_INDEX} does not match its hash")
        index = fitting(index_now(index), _IndexShape)
        if folder.name != f"round-{index.get('round', index['values'].get('round', 0)):08d}":
            raise ValueError("it is the checkpoint of another round")
        if self.run is not None and not self._is_ours(index.get("run")):
            raise ValueError("it is a checkpoint of another run")
        tensors = load(_checked(folder / _SERVER, index["sha256"][_SERVER]).read_bytes())
        found = [
            Segment(name, sha256, np.array(segments.clients_of(_checked(self._memories(name), sha256))))
            for name, sha256, _ in index["segments"]
        ]
        self._segments, self.latest = found, folder.name
        return Loaded(index["values"], tensors, self._newest(found), index.get("not_kept", 0))

    def _is_ours(self, run: str | None) -> bool:
        """Tell whether a checkpoint is of this run; a run that is older than such marks has some without."""
        assert self.run is not None
        return self.run.older if run is None else run == self.run.sha256

    def _newest(self, found: list[Segment]) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """Yield each client once, from the newest segment that holds it."""
        seen: set[int] = set()
        for segment in reversed(found):
            for client, named in segments.read(self._memories(segment.folder)):
                if client not in seen:
                    yield client, named
            seen.update(segment.clients.tolist())

    def _memories(self, folder: str) -> Path:
        return file_now(self.path / folder / _STATES)

    def _fresh(self, name: str) -> Path:
        """Return a new empty directory; that of all checkpoints is made durable when it is made."""
        refuse_link(self.path)
        if not self.path.exists():
            self.path.mkdir(parents=True)
            sync_directory(self.path.parent)
        shutil.rmtree(self.path / name, ignore_errors=True)
        (self.path / name).mkdir()
        return self.path / name

    def _prune(self, count: int) -> None:
        """Remove what none of the last checkpoints needs; newer ones were damaged and passed over."""
        present = sorted(p.name for p in self.path.glob("round-*"))
        needed = {name for name in present if name <= str(self.latest)}
        needed = set(sorted(needed)[-count:])
        for name in tuple(needed):
            try:
                index = fitting(parse_object(read_whole(self.path / name / _INDEX)), _IndexShape)
                needed |= {segment[0] for segment in index["segments"]}
            except (OSError, ValueError):
                continue  # a damaged one needs nothing
        for name in set(present) - needed:
            shutil.rmtree(self.path / name, ignore_errors=True)


def has_checkpoint(run: Path) -> bool:
    """Tell whether a run directory holds a checkpoint, which has all that the run goes on with."""
    return any((run / "checkpoints").glob(f"*/{_INDEX}"))


def _absorb(present: list[Segment], changed: set[int]) -> tuple[set[int], list[Segment]]:
    """Decide which clients are written now and which older segments stay."""
    kept, moved = list(present), set(changed)
    while kept and moved and len(kept[-1].clients) <= 2 * len(moved):
        moved.update(kept.pop().clients.tolist())
    return moved, kept


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors on the CPU, contiguous and each with memory of its own, as safetensors wants."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}


def _write(path: Path, content: bytes) -> str:
    with create(path) as file:
        file.write(content)
        sync(file)
    return hashlib.sha256(content).hexdigest()


def _checked(path: Path, sha256: str) -> Path:
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise ValueError(f"{path.name} does not match its hash")
    return path


def _digest(index: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
