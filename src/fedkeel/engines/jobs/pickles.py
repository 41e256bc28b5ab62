"""Values on their way to other processes: pickles, beside them tensors as they lie in memory.

What a script or a notebook defines goes by value, a class once per worker: from then on it goes by its
number, so that what comes back is of the class that left. Pickles are read only by the processes of a run,
from each other, never from a path or from who is not part of the run.
"""

from __future__ import annotations

import io
import pickle
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch
from torch import Tensor

from fedkeel.common.errors import FedkeelError

ALIGNED = 64  # bytes, as torch allocates: matrix products may round differently at other alignments
UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)

Spans = list[tuple[int, int]]  # where a value's tensors lie, and last its pickle
Known = dict[type, int]  # classes of a script that the other side has, and their numbers

received: Known = {}  # by this process, where it is a worker
_classes: dict[int, type] = {}
_importable: set[type] = set()  # found to go by name


class Packed(NamedTuple):
    """A value as bytes: its tensors, and last its pickle."""

    spans: Spans
    content: np.ndarray


def pack(value: Any, known: Known, *, define: bool = False) -> Packed:
    """Return a value as bytes; `define` makes its classes known."""
    parts = list(layout(value, known, define=define))
    content = np.zeros(-(-parts[-1][1] // ALIGNED) * ALIGNED, np.uint8)
    for start, end, part in parts:
        content[start:end] = np.frombuffer(part, np.uint8)
    return Packed([(start, end) for start, end, _ in parts], content)


def unpack(packed: Packed, *, copy: bool = True) -> Any:
    """Return a value from its bytes; without `copy` its tensors are views of them, and not to be changed."""
    content = packed.content
    if copy or content.ctypes.data % ALIGNED:
        content = torch.empty(len(content), dtype=torch.uint8).numpy()  # aligned, unlike numpy's own
        content[:] = packed.content
    *parts, pickled = [content[start:end] for start, end in packed.spans]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        return pickle.loads(pickled.data, buffers=parts)


def layout(value: Any, known: Known, *, define: bool = False) -> Iterator[tuple[int, int, memoryview]]:
    """Yield the parts of a value, and where each begins and ends: aligned as it is in memory here."""
    file, tensors, end = io.BytesIO(), list[pickle.PickleBuffer](), 0
    Pickler(file, known, define, tensors.append).dump(value)
    for content in (*(tensor.raw() for tensor in tensors), file.getbuffer()):
        start = end + np.frombuffer(content, np.uint8).__array_interface__["data"][0] % ALIGNED
        yield start, start + len(content), content
        end = -(-(start + len(content)) // ALIGNED) * ALIGNED


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Hands tensors to `apart`, where that is given; numbers the classes that a script defines."""

    def __init__(self, file: io.BytesIO, known: Known, define: bool = False, apart: Any = None) -> None:
        super().__init__(file, protocol=5, buffer_callback=apart)
        self._known, self._define = known, define

    def reducer_override(self, value: Any) -> Any:
        """Return how a value is pickled that has a way of its own."""
        if type(value) is Tensor and not value.requires_grad:
            value = value.cpu()  # what leaves a GPU comes back to the main memory
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


def exception_of(content: bytes) -> BaseException:
    """Return what `portable` was given, in the process that started the work."""
    problem: BaseException = pickle.loads(content)
    return problem


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


def portable(problem: Exception, place: str) -> bytes:
    """Return an exception as a pickle, with where in a `place` it was raised where it is none of ours."""
    raised = problem.__cause__ if isinstance(problem, FedkeelError) else problem
    if raised is not None:
        raised.add_note(f"In {place}:\n{''.join(traceback.format_exception(raised))}")
    try:
        return dumps(problem, received)
    except UNPICKLABLE:
        plain = RuntimeError(f"{type(raised).__name__}: {raised}")
        plain.__dict__.update(__notes__=getattr(raised, "__notes__", []))
        if raised is problem:
            return dumps(plain, received)
        problem.__cause__ = plain
        return dumps(problem, received)
