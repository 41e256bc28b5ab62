"""Values that processes share: pickles in files without a name, beside them tensors as they lie in memory.

Such a file is gone when the last process that holds it ends, however it ends. Pickles are read from files and
pipes that only this run's own processes can reach, never from a path or a network.

What a script or a notebook defines goes by value, a class once per worker: from then on it goes by its
number, so that what comes back is of the class that left.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable
from multiprocessing.reduction import DupFd
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch
from torch import Tensor

ALIGNED = 64  # bytes, as torch allocates: matrix products may round differently at other alignments
UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)

Spans = list[tuple[int, int]]  # where a value's tensors lie in a file, and last its pickle
Known = dict[type, int]  # classes of a script that the other side has, and their numbers

received: Known = {}  # by this process, where it is a worker
_classes: dict[int, type] = {}
_importable: set[type] = set()  # found to go by name


class SharedFile:
    """A nameless file that holds one value at a time and grows as needed; processes inherit it."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _nameless() if descriptor is None else descriptor
        self._memory: mmap.mmap | None = None

    def __reduce__(self) -> tuple[Callable[[Any], SharedFile], tuple[Any]]:
        return _inherited, (DupFd(self.descriptor),)

    def write(self, value: Any, known: Known, *, define: bool = False) -> Spans:
        """Put a value in place of what the file holds; `define` makes its classes known."""
        file, tensors = io.BytesIO(), list[pickle.PickleBuffer]()
        Pickler(file, known, define, tensors.append).dump(value)
        spans, end = [], 0
        for content in (*(tensor.raw() for tensor in tensors), file.getbuffer()):
            start = end + np.frombuffer(content, np.uint8).__array_interface__["data"][0] % ALIGNED
            end = start + len(content)
            spans.append((start, end))
            while start < end:  # the system takes at most 2 GiB at once
                start += os.pwrite(self.descriptor, content[start - end :], start)
            end = -(-end // ALIGNED) * ALIGNED
        return spans

    def read(self, spans: Spans, *, copy: bool = False, private: bool = False) -> Any:
        """Return the value that lies there; its tensors are copies, or views that the next write changes.

        Changes to the tensors of a `private` read are seen by this process alone.
        """
        if self._memory is None or len(self._memory) < spans[-1][1]:
            access = mmap.ACCESS_COPY if private else mmap.ACCESS_WRITE
            self._memory = mmap.mmap(self.descriptor, 0, access=access)
        *parts, pickled = [np.frombuffer(self._memory, np.uint8, end - start, start) for start, end in spans]
        if copy:
            parts = [torch.from_numpy(part).clone().numpy() for part in parts]
        return pickle.loads(pickled.data, buffers=parts)

    def close(self) -> None:
        """Let go of the file; views that are still in use stay valid."""
        self._memory = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Hands tensors to `apart`, where that is given; numbers the classes that a script defines."""

    def __init__(self, file: io.BytesIO, known: Known, define: bool = False, apart: Any = None) -> None:
        super().__init__(file, protocol=5, buffer_callback=apart)
        self._known, self._define = known, define

    def reducer_override(self, value: Any) -> Any:
        """Return how a value is pickled that has a way of its own."""
        if type(value) is Tensor and value.device.type == "cpu" and not value.requires_grad:
            return _tensor, (_raw(value), value.dtype, tuple(value.shape), value.stride())
        if isinstance(value, BaseException):
            return _exception, (type(value), value.args, value.__dict__, value.__cause__)
        return self._class(value) if isinstance(value, type) else super().reducer_override(value)

    def _class(self, value: type) -> Any:
        if value in _importable:
            return NotImplemented
        if value in self._known and not self._define:
            return _numbered, (self._known[value],)
        reduced = super().reducer_override(value)
        if reduced is NotImplemented:
            _importable.add(value)
        elif self._define:
            number = self._known.setdefault(value, len(_classes))
            _classes[number] = value
            return _defined, (number, *reduced[:2]), *reduced[2:]
        return reduced


def dumps(value: Any, known: Known) -> bytes:
    """Return a value's pickle, tensors and all."""
    file = io.BytesIO()
    Pickler(file, known).dump(value)
    return file.getvalue()


def _raw(tensor: Tensor) -> pickle.PickleBuffer | None:
    """Return a tensor's memory from its first entry to its last."""
    if tensor.numel() == 0:
        return None
    end = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return pickle.PickleBuffer(tensor.as_strided((end,), (1,)).view(torch.uint8).numpy().data)


def _tensor(raw: Any, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    if raw is None:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=dtype).as_strided(shape, stride)


def _exception(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any], cause: BaseException | None
) -> BaseException:
    """Make an exception again, also one whose constructor asks for more than its arguments."""
    made = kind.__new__(kind, *args)
    made.args = args
    made.__dict__.update(state)
    made.__cause__ = cause
    return made


def _numbered(number: int) -> type:
    return _classes[number]


def _defined(number: int, make: Callable[..., type], arguments: tuple[Any, ...]) -> type:
    made = _classes[number] = make(*arguments)
    received[made] = number
    return made


def _inherited(descriptor: Any) -> SharedFile:
    return SharedFile(descriptor.detach())


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedkeel")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
