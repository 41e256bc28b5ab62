"""Records in a memory-mapped file without a name: nothing is left behind, however the process ends."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedkeel.records import Record, is_record, leaves, rebuild, transform
from fedkeel.runs import storage

_EXTENT = 64 * 2**20  # the file grows by so much: few mappings, little waste
_ALIGNED = 64


class _Leaf(NamedTuple):
    name: str
    offset: int
    dtype: torch.dtype
    shape: torch.Size
    device: torch.device


class Rows:
    """Records of one shape, each in a row of fixed size."""

    def __init__(self, like: Record, scratch: Path | None = None) -> None:
        self.kind = kind_of(like)
        self._template = transform(lambda tensor: tensor.new_empty(0), like)
        self._leaves, self._size = _lay(like)
        self._scratch = Path(tempfile.gettempdir()) if scratch is None else scratch
        with storage(self._scratch):
            self._file = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115  open while rows live
        self._per_extent = max(1, _EXTENT // self._size)
        self._extents: list[mmap.mmap] = []
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
        self._extents.clear()
        self._file.close()

    def _view(self, row: int, leaf: _Leaf) -> Tensor:
        extent, place = divmod(row, self._per_extent)
        flat = torch.frombuffer(
            self._extents[extent],
            dtype=leaf.dtype,
            count=leaf.shape.numel(),
            offset=place * self._size + leaf.offset,
        )
        return flat.view(leaf.shape)

    def _grow(self) -> None:
        """Map another extent, its room set aside first: a full disk is then an error, not a crash."""
        page = mmap.ALLOCATIONGRANULARITY
        length = -(-self._per_extent * self._size // page) * page
        start = len(self._extents) * length
        with storage(self._scratch):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), start, length)
            else:
                os.ftruncate(self._file.fileno(), start + length)
            self._extents.append(mmap.mmap(self._file.fileno(), length, offset=start))
        first = (len(self._extents) - 1) * self._per_extent
        self._unused += range(first + self._per_extent - 1, first - 1, -1)


def kind_of(record: Record) -> Hashable:
    """Return what two records must share to lie in one table: types, names, dtypes, shapes, devices."""
    if record is None:
        return None
    if is_record(record):
        return type(record), *(kind_of(part) for part in record)
    return record.dtype, record.shape, record.device


def _lay(like: Record) -> tuple[list[_Leaf], int]:
    laid, end = [], 0
    for name, tensor in leaves(like):
        laid.append(_Leaf(name, end, tensor.dtype, tensor.shape, tensor.device))
        end += -(-tensor.nbytes // _ALIGNED) * _ALIGNED
    return laid, max(end, _ALIGNED)
