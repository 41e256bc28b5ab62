"""A client state in a directory of its node: the last two versions, each whole or absent.

A version is the number of rounds that had been played when it was written, so the server knows from its
history alone which one counts. The version that a round began with stays beside the one it made: where the
server refused what came of that round, or was killed before it kept it, the next message names the old one
and the client goes on from there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedkeel.common.files import storage_errors, sync_directory, write_durably


class MemoryLost(Exception):
    """A version that counts is not here, or damaged; the message says which."""


class MemoryDirectory:
    """The versions of one client state in one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process out: a message that was sent again may find the first still at work."""
        with storage_errors(self.path):
            new = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            if new:
                sync_directory(self.path.parent)
            with (self.path / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield

    def versions(self) -> list[int]:
        """Return the versions that are here, damaged ones too."""
        return sorted(int(found.stem) for found in self.path.glob("*.json") if found.stem.isdigit())

    def read(self, version: int) -> dict[str, Tensor]:
        """Return the tensors of a version; raise `MemoryLost` where they are not as they were written."""
        try:
            index = json.loads(self._index(version).read_text())
            content = self._tensors(version).read_bytes()
            if index["version"] != version or index["sha256"] != hashlib.sha256(content).hexdigest():
                raise MemoryLost(f"version {version} of its memory in {self.path} is damaged")
            tensors: dict[str, Tensor] = load(content)
        except FileNotFoundError:
            raise MemoryLost(f"version {version} of its memory is not in {self.path}") from None
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
            told = f"version {version} of its memory in {self.path} is damaged ({problem})"
            raise MemoryLost(told) from None
        return tensors

    def write(self, version: int, tensors: Mapping[str, Tensor], *, base: int) -> None:
        """Write a version, and drop older ones but the one it was made from.

        Newer ones stay: this may be a message that was sent twice, and came late the second time.
        """
        content = save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})
        with storage_errors(self.path):
            write_durably(self._tensors(version), content)
            index = {"version": version, "sha256": hashlib.sha256(content).hexdigest()}
            write_durably(self._index(version), json.dumps(index).encode())
            for other in self.versions():
                if other < version and other != base:
                    self._index(other).unlink(missing_ok=True)
                    self._tensors(other).unlink(missing_ok=True)

    def _tensors(self, version: int) -> Path:
        return self.path / f"{version:08d}.safetensors"

    def _index(self, version: int) -> Path:
        return self.path / f"{version:08d}.json"
