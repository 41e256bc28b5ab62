"""Records in a memory-mapped file without a name: nothing is left behind, however the process ends."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedkeel.common.files import storage_errors
from fedkeel.tensors.records import Record, is_record, leaves, rebuild, transform

_GROWTH = 64 * 2**20  # the file grows by so much at least
_ALIGNED = 64


class _Leaf(NamedTuple):
    name: str
    offset: int
    dtype: torch.dtype
    shape: torch.Size
    device: torch.device


class MmapTable:
    """Records of one shape, each in a row of fixed size."""

    def __init__(self, like: Record, directory: Path | None = None) -> None:
        self.kind = kind_of(like)
        self._template = transform(lambda tensor: tensor.new_empty(0), like)
        self._leaves, self._size = _offsets(like)
        self._directory = Path(tempfile.gettempdir()) if directory is None else directory
        with storage_errors(self._directory), tempfile.TemporaryFile(dir=self._directory) as file:
            self._handle = os.dup(file.fileno())
        self._close = weakref.finalize(self, os.close, self._handle)
        self._map: mmap.mmap | None = None
        self._unused: list[int] = []

    def put(self, record: Record) -> int:
        """Write a record and return its row."""
        if not self._unused:
            self._grow()
        row = self._unused.pop()
        for leaf, (_, tensor) in zip(self._leaves, leaves(record), strict=True):
            if tensor.numel():
                self._view(row, leaf).copy_(tensor)
        return row

    def get(self, row: int) -> Record:
        """Return the record of a row, with tensors of its own."""
        found = {
            leaf.name: self._view(row, leaf).to(leaf.device, copy=True)
            if leaf.shape.numel()
            else torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device)
            for leaf in self._leaves
        }
        return rebuild(self._template, found)

    def free(self, row: int) -> None:
        """Let a row be used again."""
        self._unused.append(row)

    def close(self) -> None:
        """Give back the file."""
        self._map = None
        self._close()

    def _view(self, row: int, leaf: _Leaf) -> Tensor:
        assert self._map is not None
        start = row * self._size + leaf.offset
        flat = torch.frombuffer(self._map, dtype=leaf.dtype, count=leaf.shape.numel(), offset=start)
        return flat.view(leaf.shape)

    def _grow(self) -> None:
        """Map a larger file, its room set aside first: a full disk is then an error, not a crash."""
        had = 0 if self._map is None else len(self._map)
        more = max(_GROWTH, had // 4, self._size)
        with storage_errors(self._directory):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._handle, had, more)
            else:
                os.ftruncate(self._handle, had + more)
            self._map = mmap.mmap(self._handle, had + more)
        self._unused += reversed(range(had // self._size, (had + more) // self._size))


def kind_of(record: Record) -> Hashable:
    """Return what two records must share to lie in one table: types, names, dtypes, shapes, devices."""
    if record is None:
        return None
    if is_record(record):
        return type(record), *(kind_of(part) for part in record)
    return record.dtype, record.shape, record.device


def _offsets(like: Record) -> tuple[list[_Leaf], int]:
    laid, end = [], 0
    for name, tensor in leaves(like):
        laid.append(_Leaf(name, end, tensor.dtype, tensor.shape, tensor.device))
        end += -(-tensor.nbytes // _ALIGNED) * _ALIGNED
    return laid, max(end, _ALIGNED)
