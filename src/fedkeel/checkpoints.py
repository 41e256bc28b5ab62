"""Checkpoints: safetensors and JSON, each with its SHA-256, whole or absent at every instant.

A checkpoint is a directory that is filled under a temporary name, synced and renamed. It holds the server and
the memories of the clients that changed since the one before; `checkpoint.json` says in which checkpoint each
client's memory lies. A new checkpoint takes over the memories of older ones that are not much larger than
itself, so the cost of a checkpoint follows the clients that took part, not the population.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedkeel.errors import StorageError
from fedkeel.records import Record, leaves
from fedkeel.runs import storage, sync_directory
from fedkeel.store import Store

_SERVER, _MEMORIES, _INDEX = "server.safetensors", "memories.safetensors", "checkpoint.json"
_KEPT = 2


class Segment(NamedTuple):
    """Which clients' memories lie in which checkpoint, and the hash of that file."""

    folder: str
    sha256: str
    clients: list[int]


class Loaded(NamedTuple):
    """A checkpoint as read: plain values, named tensors, and each client's named tensors."""

    values: dict[str, Any]
    tensors: dict[str, Tensor]
    memories: dict[int, dict[str, Tensor]]


class Checkpoints:
    """The checkpoints of one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path / "checkpoints"
        self._segments: list[Segment] = []
        self.latest: str | None = None

    def write(
        self,
        round: int,
        values: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        store: Store,
    ) -> None:
        """Write the checkpoint after `round` rounds."""
        name = f"round-{round:08d}"
        if name == self.latest:
            return
        dropped, changed = store.news()
        moved, kept = _absorb([] if dropped else self._segments, changed)
        with storage(self.path):
            temporary = self.path / f".{name}.tmp"
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            hashes = {_SERVER: _write(temporary / _SERVER, save(_plain(tensors)))}
            segments = kept
            if moved:
                blob = save(_plain(_named(store, moved)))
                segments = [*kept, Segment(name, _write(temporary / _MEMORIES, blob), sorted(moved))]
            index = {"values": dict(values), "sha256": hashes, "segments": segments}
            _write(temporary / _INDEX, json.dumps({**index, "own": _digest(index)}).encode())
            sync_directory(temporary)
            shutil.rmtree(self.path / name, ignore_errors=True)  # a damaged one that was passed over
            os.replace(temporary, self.path / name)
            sync_directory(self.path)
            self._segments, self.latest = segments, name
            self._prune()

    def read(self, report: Callable[[str], None]) -> Loaded | None:
        """Return the newest whole checkpoint; damaged ones are reported and passed over."""
        folders = sorted((p for p in self.path.glob("round-*") if p.is_dir()), reverse=True)
        for folder in folders:
            try:
                loaded = self._read(folder)
            except (OSError, ValueError, KeyError, SafetensorError) as problem:
                report(f"{folder}: damaged ({problem}); going back to the checkpoint before")
                continue
            return loaded
        if folders:
            raise StorageError(
                f"{self.path}: none of {len(folders)} checkpoints is whole: start anew elsewhere"
            )
        return None

    def _read(self, folder: Path) -> Loaded:
        index = json.loads((folder / _INDEX).read_text())
        if index.pop("own") != _digest(index):
            raise ValueError(f"{_INDEX} does not match its hash")
        tensors = load(_checked(folder / _SERVER, index["sha256"][_SERVER]))
        segments = [Segment(*segment) for segment in index["segments"]]
        memories: dict[int, dict[str, Tensor]] = {}
        for segment in segments:
            stored = load(_checked(self.path / segment.folder / _MEMORIES, segment.sha256))
            wanted = set(segment.clients)
            for name, tensor in stored.items():
                client, _, leaf = name.partition(".")
                if int(client) in wanted:
                    memories.setdefault(int(client), {})[leaf] = tensor
        self._segments, self.latest = segments, folder.name
        return Loaded(index["values"], tensors, memories)

    def _prune(self) -> None:
        whole = sorted(p.name for p in self.path.glob("round-*"))
        needed = set(whole[-_KEPT:])
        for name in tuple(needed):
            try:
                index = json.loads((self.path / name / _INDEX).read_text())
                needed |= {segment[0] for segment in index["segments"]}
            except (OSError, ValueError, KeyError):
                continue  # a damaged one needs nothing
        for name in set(whole) - needed:
            shutil.rmtree(self.path / name, ignore_errors=True)


def _absorb(segments: list[Segment], changed: set[int]) -> tuple[set[int], list[Segment]]:
    """Decide which clients are written now and which older segments stay."""
    kept = [s._replace(clients=[c for c in s.clients if c not in changed]) for s in segments]
    kept = [segment for segment in kept if segment.clients]
    while kept and changed and len(kept[-1].clients) <= 2 * len(changed):
        changed |= set(kept.pop().clients)
    return changed, kept


def _named(memories: Mapping[int, Record], clients: Iterable[int]) -> dict[str, Tensor]:
    return {f"{i}.{name}": tensor for i in sorted(clients) for name, tensor in leaves(memories[i])}


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors on the CPU, contiguous and each with memory of its own, as safetensors wants."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}


def _write(path: Path, content: bytes) -> str:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def _checked(path: Path, sha256: str) -> bytes:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{path.name} does not match its hash")
    return content


def _digest(index: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
