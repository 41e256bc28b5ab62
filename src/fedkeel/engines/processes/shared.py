"""Values whose tensors lie in memory that several processes map.

A slab is a file without a name: when the last process that holds it ends, however it ends, it is gone. A
value is written as its pickle and, apart from it, the raw bytes of its tensors, so that a large vector is
copied once and a pipe carries only places.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedkeel.engines.processes.pickles import dumps, loads

ALIGNED = 64  # as torch allocates: matrix products may round differently at other alignments


class Place(NamedTuple):
    """Where a tensor lies in a slab."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Slab:
    """A nameless file of tensors that grows as needed; `private` keeps a reader's own writes to itself."""

    def __init__(self, handle: int | None = None, *, private: bool = False) -> None:
        self.handle = _nameless() if handle is None else handle
        self._access = mmap.ACCESS_COPY if private else mmap.ACCESS_WRITE
        self._map: mmap.mmap | None = None

    def write(self, value: Any) -> list[Place]:
        """Put a value in place of what the slab holds; return where its pickle and its tensors lie."""
        header, tensors = dumps(value)
        places, end = [], 0
        for tensor in (torch.frombuffer(bytearray(header), dtype=torch.uint8), *tensors):
            place, content = _lay(tensor, end)
            _write_all(self.handle, content, place.offset)
            places.append(place)
            end = -(-(place.offset + len(content)) // ALIGNED) * ALIGNED
        return places

    def read(self, places: Sequence[Place]) -> Any:
        """Return the value that lies there; its tensors are views, good until the slab is written again."""
        header, *tensors = [self._view(place) for place in places]
        return loads(header.numpy().tobytes(), tensors)

    def take(self, places: Sequence[Place]) -> Any:
        """Return the value that lies there with tensors of its own."""
        header, *tensors = [self._view(place) for place in places]
        return loads(header.numpy().tobytes(), [tensor.clone() for tensor in tensors])

    def close(self) -> None:
        """Let go of the file; views that are still about stay good."""
        self._map = None
        if self.handle >= 0:
            os.close(self.handle)
        self.handle = -1

    def _view(self, place: Place) -> Tensor:
        numel = torch.Size(place.shape).numel()
        if numel == 0:
            return torch.empty(place.shape, dtype=place.dtype)
        mapped = self._mapped(place.offset + numel * place.dtype.itemsize)
        flat = torch.frombuffer(mapped, dtype=place.dtype, count=numel, offset=place.offset)
        return flat.as_strided(place.shape, place.stride)

    def _mapped(self, end: int) -> mmap.mmap:
        if self._map is None or len(self._map) < end:
            self._map = mmap.mmap(self.handle, 0, access=self._access)
        return self._map


def _lay(tensor: Tensor, offset: int) -> tuple[Place, memoryview]:
    """Return a tensor's place and bytes.

    Its order in memory is kept, for kernels are chosen by it, and its alignment, for they round by it.
    """
    dense = tensor if tensor.is_contiguous() else tensor.clone()
    flat = dense.as_strided((dense.numel(),), (1,))
    place = Place(offset + tensor.data_ptr() % ALIGNED, dense.dtype, tuple(dense.shape), dense.stride())
    return place, flat.view(torch.uint8).numpy().data


def _write_all(handle: int, content: memoryview, offset: int) -> None:
    written = 0
    while written < len(content):  # the system takes at most 2 GiB at once
        written += os.pwrite(handle, content[written:], offset + written)


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedkeel")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
