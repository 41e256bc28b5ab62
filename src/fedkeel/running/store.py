"""The clients' memories between rounds: only clients that took part cost anything.

Memories stay in RAM up to a budget; past it those of the clients that took part longest ago lie in a
memory-mapped file. Where a memory lies changes no bit of it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from fedkeel.errors import ConfigError
from fedkeel.records import Record, leaves
from fedkeel.running.mmap_store import Rows, kind_of

BUDGET = "FEDKEEL_MEMORY_BUDGET"
_DEFAULT = 2 * 2**30
_OVERHEAD = 512  # what a tensor object takes beside its entries: with small models most of the memory
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Store(Mapping[int, Record]):
    """Client → memory, and what has changed since the last checkpoint.

    `budget` is in bytes; by default the environment's FEDKEEL_MEMORY_BUDGET (as 512M or 8G), else 2 GiB.
    `scratch` is the directory of the file beyond; by default the system's own for temporary files.
    """

    def __init__(
        self,
        memories: Mapping[int, Record] | None = None,
        *,
        budget: int | None = None,
        scratch: Path | None = None,
    ) -> None:
        self.budget = budget_from_environment() if budget is None else budget
        self._scratch = scratch
        self._near: OrderedDict[int, Record] = OrderedDict()  # the longest unused first
        self._far: dict[int, tuple[Rows, int]] = {}
        self._rows: dict[Hashable, Rows] = {}
        self._held = 0
        self._changed: set[int] = set()
        self._cleared = False
        self.commit(memories or {})
        self.settle()

    def __getitem__(self, client: int) -> Record:
        if client in self._near:
            return self._near[client]
        rows, row = self._far[client]
        return rows.get(row)

    def __contains__(self, client: object) -> bool:
        return client in self._near or client in self._far

    def __iter__(self) -> Iterator[int]:
        return chain(self._far, self._near)

    def __len__(self) -> int:
        return len(self._near) + len(self._far)

    @property
    def spilled(self) -> int:
        """Return how many memories lie in the file."""
        return len(self._far)

    def kind(self, client: int) -> Hashable:
        """Return the shape of a client's memory, without reading it from the file."""
        return kind_of(self._near[client]) if client in self._near else self._far[client][0].kind

    def commit(self, memories: Mapping[int, Record]) -> None:
        """Take over a round's new memories."""
        for client, memory in memories.items():
            self._drop(client)
            self._near[client] = memory
            self._held += _cost(memory)
            self._changed.add(client)
            self._shrink()

    def clear(self) -> None:
        """Forget all memories (a new stage begins)."""
        self._near.clear()
        self._far.clear()
        for rows in self._rows.values():
            rows.close()
        self._rows.clear()
        self._held = 0
        self._changed.clear()
        self._cleared = True

    def changes(self) -> tuple[bool, set[int]]:
        """Return whether all older memories were dropped, and who changed, since `settle`."""
        return self._cleared, set(self._changed)

    def settle(self) -> None:
        """Count all changes as kept: a checkpoint holds them."""
        self._cleared, self._changed = False, set()

    def _drop(self, client: int) -> None:
        if client in self._near:
            self._held -= _cost(self._near.pop(client))
        elif client in self._far:
            rows, row = self._far.pop(client)
            rows.free(row)

    def _shrink(self) -> None:
        while self._held > self.budget and self._near:
            client, memory = next(iter(self._near.items()))
            kind = kind_of(memory)
            if kind not in self._rows:
                self._rows[kind] = Rows(memory, self._scratch)
            self._far[client] = self._rows[kind], self._rows[kind].put(memory)
            del self._near[client]
            self._held -= _cost(memory)


def budget_from_environment() -> int:
    """Return how many bytes of RAM the memories may take."""
    given = os.environ.get(BUDGET, "").strip().upper().removesuffix("IB").removesuffix("B")
    if not given:
        return _DEFAULT
    unit = given[-1] if given[-1] in _UNITS else ""
    try:
        return int(float(given.removesuffix(unit)) * _UNITS[unit])
    except ValueError:
        raise ConfigError(f"{BUDGET} = {os.environ[BUDGET]!r}: give bytes, as in 512M or 8G") from None


def _cost(memory: Record) -> int:
    return sum(tensor.nbytes + _OVERHEAD for _, tensor in leaves(memory))
