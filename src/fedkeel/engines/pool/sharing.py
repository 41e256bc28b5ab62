"""Values that processes share, in files without a name.

Such a file is gone when the last process that holds it ends, however it ends. Pickles are read from files and
pipes that only this run's own processes can reach, never from a path or a network.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from collections.abc import Callable
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import torch

from fedkeel.engines.jobs.pickles import Known, Spans, layout


class SharedFile:
    """A nameless file that holds one value at a time and grows as needed; processes inherit it."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _nameless() if descriptor is None else descriptor
        self._memory: mmap.mmap | None = None

    def __reduce__(self) -> tuple[Callable[[Any], SharedFile], tuple[Any]]:
        return _inherited, (DupFd(self.descriptor),)

    def write(self, value: Any, known: Known, *, define: bool = False) -> Spans:
        """Put a value in place of what the file holds; `define` makes its classes known."""
        spans = Spans()
        for start, end, content in layout(value, known, define=define):
            spans.append((start, end))
            at = start
            while at < end:  # the system takes at most 2 GiB at once
                at += os.pwrite(self.descriptor, content[at - end :], at)
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


def _inherited(descriptor: Any) -> SharedFile:
    return SharedFile(descriptor.detach())


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedkeel")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
