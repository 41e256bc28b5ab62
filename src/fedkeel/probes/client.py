"""The probes' work at a client: what a round asks of it, and the trace of its walk."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedkeel.probes.base import ClientView, Probe
from fedkeel.tensors.records import RecordList
from fedkeel.tensors.vector import Vector, squared_norm


class WalkTrace:
    """Sums ‖y − x‖² over the points of a walk."""

    def __init__(self, x: Vector) -> None:
        self._x, self._room = x, torch.empty_like(x)
        self.total = torch.zeros(1, dtype=torch.float64, device=x.device)

    def __call__(self, y: Vector) -> None:
        """Take a point in."""
        torch.sub(y, self._x, out=self._room)
        self.total += torch.dot(self._room, self._room)


class WalkTraces:
    """Sums ‖y_i − x‖² over the points of many walks side by side, (clients, d); each while it is walked."""

    def __init__(self, x: Vector, walks: int) -> None:
        self._x = x
        self.total = torch.zeros((walks, 1), dtype=torch.float64, device=x.device)

    def __call__(self, y: Vector, alive: Tensor) -> None:
        """Take a point of each walk in that is `alive`, (clients, 1)."""
        self.total += torch.where(alive, squared_norm(y - self._x), 0.0)


class ClientProbes(NamedTuple):
    """What is measured at every client in a round: the probes, which are due, and what each is told."""

    probes: tuple[Probe, ...]
    due: tuple[bool, ...]
    briefs: RecordList

    @property
    def traces(self) -> bool:
        """Tell whether a probe that is due asks for the walk's points."""
        return any(probe.traces for probe, due in zip(self.probes, self.due, strict=True) if due)

    def trace(self, x: Vector) -> WalkTrace | None:
        """Return what the walk has to be traced with, None where no probe asks."""
        return WalkTrace(x) if self.traces else None

    def trace_many(self, x: Vector, walks: int) -> WalkTraces | None:
        """Return what many walks side by side have to be traced with, None where no probe asks."""
        return WalkTraces(x, walks) if self.traces else None

    def measure(self, view: ClientView, notes: RecordList) -> tuple[RecordList, RecordList]:
        """Return a client's measures, None for probes that are not due, and its new notes."""
        parts = zip(self.probes, self.due, notes, self.briefs, strict=True)
        seen = [probe.measure(view, own, brief) if due else (None, own) for probe, due, own, brief in parts]
        return RecordList(*(measure for measure, _ in seen)), RecordList(*(note for _, note in seen))
