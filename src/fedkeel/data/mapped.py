"""InMemory in memory-mapped files: only what is asked for is read, and each process maps the files itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.common.frozen import frozen
from fedkeel.data.samples import Batch, InMemory, Samples, array_tree, as_target, tensors_of
from fedkeel.tensors.trees import Tree, each, leaves

_LOOKED_AT = 64  # samples that are looked at before training
_ARRAYS = (Tensor, np.memmap)


class MappedFiles:
    """InMemory some of which are memory-mapped files: of those only what is asked for is read."""

    def __init__(self, x: Tree, y: Tree) -> None:
        self._x, self._y = x, y

    def __reduce__(self) -> tuple[Any, ...]:
        files = (each(_file, tree, kind=np.memmap) for tree in (self._x, self._y))
        return _mapped_again, tuple(files)

    @property
    def size(self) -> int:
        """Return how many there are."""
        return len(leaves(self._y, kind=_ARRAYS)[0])

    def take(self, rows: Tensor) -> Batch:
        """Return inputs and targets of these rows."""
        return self._read(rows)

    def part(self, start: int, stop: int) -> Batch:
        """Return inputs and targets of consecutive rows."""
        return self._read(torch.arange(start, min(stop, self.size)))

    def sample(self) -> InMemory:
        """Return some, from the first to the last."""
        return InMemory(*self._read(torch.linspace(0, self.size - 1, min(self.size, _LOOKED_AT)).long()))

    def identity(self) -> str:
        """Return what the fingerprint says of samples that it does not cover."""
        return "memory-mapped"

    def _read(self, rows: Tensor) -> Batch:
        x, y = (each(lambda one: _rows(one, rows), tree, kind=_ARRAYS) for tree in (self._x, self._y))
        return x, each(as_target, y)


def samples_of(x: Any, y: Any, owner: str) -> Samples:
    """Return arrays as samples: in memory, or left in their files where some are memory-mapped."""
    if not (is_mapped(x) or is_mapped(y)):
        return tensors_of(x, y, owner)
    trees = [array_tree(value, owner, keep=np.memmap) for value in (x, y)]
    counts = {len(leaf) for tree in trees for leaf in leaves(tree, kind=_ARRAYS)}
    if len(counts) != 1:
        shown = " and ".join(map(str, sorted(counts)))
        raise DataError(f"{owner}: arrays of {shown} rows: give one row of y per row of x")
    return MappedFiles(*trees)


def is_mapped(value: Any) -> bool:
    """Tell whether an array, or one of a tuple or dict, is memory-mapped."""
    if isinstance(value, dict):
        return any(map(is_mapped, value.values()))
    return isinstance(value, np.memmap) or (isinstance(value, tuple) and any(map(is_mapped, value)))


def _rows(array: Any, rows: Tensor) -> Tensor:
    return array[rows] if isinstance(array, Tensor) else torch.from_numpy(np.asarray(array[rows.numpy()]))


@frozen
class _FilePart:
    """Where a memory-mapped array lies, for another process to map it again."""

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]

    def mapped(self) -> np.memmap[Any, Any]:
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


def _file(array: np.memmap[Any, Any]) -> Any:
    """Return where an array lies; a copy where its rows do not lie one after another."""
    if array.filename is None or not array.flags.c_contiguous:
        return torch.from_numpy(np.array(array))
    whole = array
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    first, start = (one.__array_interface__["data"][0] for one in (array, whole))
    return _FilePart(str(array.filename), array.dtype.str, whole.offset + first - start, array.shape)


def _mapped_again(x: Tree, y: Tree) -> MappedFiles:
    return MappedFiles(*(each(_FilePart.mapped, tree, kind=_FilePart) for tree in (x, y)))
