"""Probes at work: what a round asks of its clients, and how their answers become columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedkeel.layout import Layout
from fedkeel.probes.base import ClientView, Columns, Kept, Probe, RoundView, Several
from fedkeel.records import Record, leaves, rebuild
from fedkeel.reducers import Mean, Reducer
from fedkeel.vector import Vector, squared_norm


class Path:
    """Sums ‖y − x‖² over the points of a walk."""

    def __init__(self, x: Vector) -> None:
        self._x, self._room = x, torch.empty_like(x)
        self.total = torch.zeros(1, dtype=torch.float64, device=x.device)

    def __call__(self, y: Vector) -> None:
        """Take a point in."""
        torch.sub(y, self._x, out=self._room)
        self.total += torch.dot(self._room, self._room)


class Paths:
    """Sums ‖y_i − x‖² over the points of many walks side by side, (clients, d); each while it is walked."""

    def __init__(self, x: Vector, walks: int) -> None:
        self._x = x
        self.total = torch.zeros((walks, 1), dtype=torch.float64, device=x.device)

    def __call__(self, y: Vector, alive: Tensor) -> None:
        """Take a point of each walk in that is `alive`, (clients, 1)."""
        self.total += torch.where(alive, squared_norm(y - self._x), 0.0)


class Watch(NamedTuple):
    """What is asked of every client in a round: the probes, which of them look, and what they are told."""

    probes: tuple[Probe, ...]
    looks: tuple[bool, ...]
    briefs: Several

    @property
    def traces(self) -> bool:
        """Tell whether a probe that looks asks for the walk's points."""
        return any(probe.traces for probe, looks in zip(self.probes, self.looks, strict=True) if looks)

    def path(self, x: Vector) -> Path | None:
        """Return what the walk has to be traced with, None where nobody asks."""
        return Path(x) if self.traces else None

    def paths(self, x: Vector, walks: int) -> Paths | None:
        """Return what many walks side by side have to be traced with, None where nobody asks."""
        return Paths(x, walks) if self.traces else None

    def look(self, view: ClientView, notes: Several) -> tuple[Several, Several]:
        """Return a client's measures and its new notes; None for probes that do not look."""
        parts = zip(self.probes, self.looks, notes, self.briefs, strict=True)
        seen = [
            probe.measure(view, own, brief) if looks else (None, own) for probe, looks, own, brief in parts
        ]
        return Several(*(measure for measure, _ in seen)), Several(*(kept for _, kept in seen))


class Apart:
    """A reducer that averages measures with equal weights, apart from what the method's reducer does."""

    def __init__(self, inner: Reducer) -> None:
        self.inner = inner

    def fold(self, uploads: Iterable[tuple[float, Record]]) -> Any:
        """Fold the uploads of a chunk and, beside them, their measures."""
        measures: list[tuple[float, Record]] = []

        def plain() -> Iterable[tuple[float, Record]]:
            for weight, upload in uploads:
                measures.append((1.0, upload.measures))
                yield weight, upload._replace(measures=None)

        return self.inner.fold(plain()), Mean().fold(measures)

    def merge(self, parts: Sequence[Any]) -> Record:
        """Merge both, and put them together again."""
        upload = self.inner.merge([part for part, _ in parts])
        return upload._replace(measures=Mean().merge([measured for _, measured in parts]))


class Unpacked(Mapping[int, Record]):
    """The methods' memories in a store that holds probes' notes too."""

    def __init__(self, store: Mapping[int, Record]) -> None:
        self._store = store

    def __getitem__(self, client: int) -> Record:
        return self._store[client].method

    def __iter__(self) -> Iterator[int]:
        return (i for i in self._store if self._store[i].method)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Panel(NamedTuple):
    """All probes of a run; `asked` are those that are not always on."""

    probes: tuple[Probe, ...] = ()
    asked: tuple[Probe, ...] = ()

    @property
    def keeps(self) -> bool:
        """Tell whether clients keep notes."""
        return any(probe.keeps for probe in self.probes)

    def begin(self, x0: Vector, layout: Layout) -> Several:
        """Return the probes' states before the first round."""
        return Several(*(probe.begin(x0, layout) for probe in self.probes))

    def renew(self, states: Several) -> Several:
        """Return the states where a stage begins with fresh memories."""
        return Several(*(probe.renew(state) for probe, state in zip(self.probes, states, strict=True)))

    def watch(self, states: Several, round: int, rounds: int) -> Watch | None:
        """Return what a round asks of its clients, None where no probe looks at them."""
        looks = tuple(p.at_clients and (p.always or p.due(round, rounds)) for p in self.probes)
        if not any(looks):
            return None
        briefs = (probe.brief(state) for probe, state in zip(self.probes, states, strict=True))
        return Watch(self.probes, looks, Several(*briefs))

    def enlist(self, states: Several) -> Several:
        """Return the notes of a client that never took part."""
        return Several(*(probe.enlist(state) for probe, state in zip(self.probes, states, strict=True)))

    def hand_out(
        self,
        watch: Watch | None,
        states: Several,
        stored: Sequence[Record | None],
        enlist: Callable[[], Record],
    ) -> list[Record]:
        """Return what the cohort's clients work with, from what the store holds of them."""
        if not self.keeps:
            memories = [enlist() if memory is None else memory for memory in stored]
            return memories if watch is None else [Kept(m, self.enlist(states)) for m in memories]
        kept = [Kept(None, self.enlist(states)) if one is None else one for one in stored]
        return [one._replace(method=enlist()) if one.method is None else one for one in kept]

    def take_in(self, watch: Watch | None, memories: Sequence[Record]) -> tuple[list[Record], list[Record]]:
        """Return the methods' memories that came back, and what the store shall hold."""
        if watch is None:
            return list(memories), list(memories)
        plain = [memory.method for memory in memories]
        return plain, list(memories) if self.keeps else plain

    def restored(self, memory: Record, notes: Several, tensors: Mapping[str, Tensor]) -> Record:
        """Return a client's record from its named tensors, like the two templates."""
        if not self.keeps:
            return rebuild(memory, tensors)
        fresh = any(True for _ in leaves(memory)) and not any(name.startswith("method.") for name in tensors)
        return rebuild(Kept(None if fresh else memory, notes), tensors)

    def memories(self, store: Mapping[int, Record]) -> Mapping[int, Record]:
        """Return the methods' memories alone."""
        return Unpacked(store) if self.keeps else store

    def notes_of(self, store: Mapping[int, Record]) -> dict[int, Record]:
        """Return what stays of the clients where the methods' memories start afresh: the notes."""
        return {i: store[i]._replace(method=None) for i in store} if self.keeps else {}

    def report(self, states: Several, seen: RoundView) -> tuple[Columns, Several]:
        """Return the columns of a round and the next states."""
        columns: Columns = {}
        following = []
        measures = seen.measures or (None,) * len(self.probes)
        for probe, state, measured in zip(self.probes, states, measures, strict=True):
            columns |= dict.fromkeys(probe.names(seen.layout))
            due = probe.due(seen.round, seen.rounds)
            if due or probe.always:
                view = seen._replace(measures=measured, row={**seen.row, **columns})
                reported, state = probe.report(state, view)  # noqa: PLW2901
                columns |= reported if due else {}
            following.append(state)
        return columns, Several(*following)

    def names(self, layout: Layout) -> list[str]:
        """Return all columns."""
        return [name for probe in self.probes for name in probe.names(layout)]
