"""Many client states in one safetensors file, written and read as a stream.

Memories of one shape are stacked leaf by leaf: `memory.0.c_i` has one row per client, `clients.0` says whose.
Memory use does not grow with the number of clients, nor does the
header, which one entry per client would burst.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedkeel.common.files import create, sync
from fedkeel.running.store import Store
from fedkeel.tensors.records import leaves

_BLOCK = 4 * 2**20
_DTYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_NAMES = {name: dtype for dtype, name in _DTYPES.items()}


class _Table(NamedTuple):
    """A tensor of the file: what it is called, its dtype and its shape, one row per client."""

    name: str
    dtype: torch.dtype
    shape: list[int]

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def write(path: Path, store: Store, clients: Iterable[int]) -> str:
    """Write the memories of some clients, synced, and return the file's SHA-256."""
    groups: dict[Hashable, list[int]] = {}
    for client in sorted(clients):
        groups.setdefault(store.kind(client), []).append(client)
    digest = hashlib.sha256()
    with create(path) as file:
        for block in _stream(store, list(groups.values())):
            digest.update(block)
            file.write(block)
        sync(file)
    return digest.hexdigest()


def clients_of(path: Path) -> list[int]:
    """Return whose memories a file holds."""
    return [int(i) for name, table in _tables(path).items() if name.startswith("clients.") for i in table]


def read(path: Path) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Yield each client of a file with its named tensors, which are its own."""
    tables = _tables(path)
    for name, clients in tables.items():
        if not name.startswith("clients."):
            continue
        prefix = f"memory.{name.removeprefix('clients.')}."
        mine = {key.removeprefix(prefix): table for key, table in tables.items() if key.startswith(prefix)}
        for row, client in enumerate(clients.tolist()):
            yield client, {leaf: table[row].clone() for leaf, table in mine.items()}


def _stream(store: Store, groups: list[list[int]]) -> Iterator[Any]:
    """Yield the bytes of a file: header, then the tables, a few rows at a time."""
    plan: list[tuple[_Table, list[int], str | None]] = []
    for number, clients in enumerate(groups):
        plan.append((_Table(f"clients.{number}", torch.int64, [len(clients)]), clients, None))
        for leaf, tensor in leaves(store[clients[0]]):
            shape = [len(clients), *tensor.shape]
            plan.append((_Table(f"memory.{number}.{leaf}", tensor.dtype, shape), clients, leaf))
    plan.sort(key=lambda entry: -entry[0].dtype.itemsize)  # so that all lie aligned
    yield _header([table for table, _, _ in plan])
    for table, clients, named in plan:
        if named is None:
            yield _raw(torch.tensor(clients, dtype=torch.int64))
            continue
        step = max(1, _BLOCK * len(clients) // max(1, table.nbytes))
        for start in range(0, len(clients), step):
            some = [dict(leaves(store[client]))[named] for client in clients[start : start + step]]
            yield _raw(torch.stack(some).cpu())


def _header(tables: list[_Table]) -> bytes:
    described, end = {}, 0
    for table in tables:
        offsets = [end, end + table.nbytes]
        described[table.name] = {"dtype": _DTYPES[table.dtype], "shape": table.shape, "data_offsets": offsets}
        end = offsets[1]
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _raw(tensor: Tensor) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def _tables(path: Path) -> dict[str, Tensor]:
    """Return a file's tensors as views of the mapped file."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    start = 8 + int.from_bytes(mapped[:8], "little")
    tables = {}
    for name, entry in json.loads(mapped[8:start]).items():
        shape, dtype = torch.Size(entry["shape"]), _NAMES[entry["dtype"]]
        if shape.numel() == 0:
            tables[name] = torch.empty(shape, dtype=dtype)
            continue
        offset = start + entry["data_offsets"][0]
        tables[name] = torch.frombuffer(mapped, dtype=dtype, count=shape.numel(), offset=offset).view(shape)
    return tables
