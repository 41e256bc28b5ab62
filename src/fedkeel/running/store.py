"""The client states between rounds: only clients that took part cost anything.

Memories stay in RAM up to a budget; past it those of the clients that took part longest ago lie in a
memory-mapped file. Where a memory lies changes no bit of it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from fedkeel.common.errors import ConfigError
from fedkeel.running.mmap_store import MmapTable, kind_of
from fedkeel.tensors.records import Record, leaves

BUDGET = "FEDKEEL_MEMORY_BUDGET"
_DEFAULT = 2 * 2**30
_OVERHEAD = 512  # what a tensor object takes beside its entries: with small models most of the memory
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Store(Mapping[int, Record]):
    """Client → memory, and what has changed since the last checkpoint.

    `budget` is in bytes; by default the environment's FEDKEEL_MEMORY_BUDGET (as 512M or 8G), else 2 GiB.
    `directory` is where the file beyond lies; by default the system's own for temporary files.
    """

    def __init__(
        self,
        memories: Mapping[int, Record] | None = None,
        *,
        budget: int | None = None,
        directory: Path | None = None,
    ) -> None:
        self.budget = budget_from_environment() if budget is None else budget
        self._directory = directory
        self._in_ram: OrderedDict[int, Record] = OrderedDict()  # the longest unused first
        self._in_file: dict[int, tuple[MmapTable, int]] = {}
        self._tables: dict[Hashable, MmapTable] = {}
        self._held = 0
        self._changed: set[int] = set()
        self._cleared = False
        self.commit(memories or {})
        self.mark_saved()

    def __getitem__(self, client: int) -> Record:
        if client in self._in_ram:
            return self._in_ram[client]
        table, row = self._in_file[client]
        return table.get(row)

    def __contains__(self, client: object) -> bool:
        return client in self._in_ram or client in self._in_file

    def __iter__(self) -> Iterator[int]:
        return chain(self._in_file, self._in_ram)

    def __len__(self) -> int:
        return len(self._in_ram) + len(self._in_file)

    @property
    def in_file(self) -> int:
        """Return how many memories lie in the file."""
        return len(self._in_file)

    def kind(self, client: int) -> Hashable:
        """Return the shape of a client state, without reading it from the file."""
        return kind_of(self._in_ram[client]) if client in self._in_ram else self._in_file[client][0].kind

    def commit(self, memories: Mapping[int, Record]) -> None:
        """Take over a round's new memories."""
        for client, memory in memories.items():
            self._drop(client)
            self._in_ram[client] = memory
            self._held += _cost(memory)
            self._changed.add(client)
            self._shrink()

    def clear(self) -> None:
        """Forget all memories (a new stage begins)."""
        self._in_ram.clear()
        self._in_file.clear()
        for table in self._tables.values():
            table.close()
        self._tables.clear()
        self._held = 0
        self._changed.clear()
        self._cleared = True

    def changes(self) -> tuple[bool, set[int]]:
        """Return whether all older memories were dropped, and who changed, since `mark_saved`."""
        return self._cleared, set(self._changed)

    def mark_saved(self) -> None:
        """Count all changes as kept: a checkpoint holds them."""
        self._cleared, self._changed = False, set()

    def _drop(self, client: int) -> None:
        if client in self._in_ram:
            self._held -= _cost(self._in_ram.pop(client))
        elif client in self._in_file:
            table, row = self._in_file.pop(client)
            table.free(row)

    def _shrink(self) -> None:
        while self._held > self.budget and self._in_ram:
            client, memory = next(iter(self._in_ram.items()))
            kind = kind_of(memory)
            if kind not in self._tables:
                self._tables[kind] = MmapTable(memory, self._directory)
            self._in_file[client] = self._tables[kind], self._tables[kind].put(memory)
            del self._in_ram[client]
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
