"""Samples that are not in memory: loaded client by client, or read one by one.

What is loaded is checked when it is loaded. Worker processes load for themselves; nothing that was loaded is
sent to them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from fedkeel.common.errors import DataError
from fedkeel.common.identity import stable_name
from fedkeel.data.arrays import Columns, arrays, stacked
from fedkeel.data.mapped import is_mapped, samples_of
from fedkeel.data.samples import (
    Batch,
    InMemory,
    Samples,
    check_alike,
    first_infinite,
)
from fedkeel.tensors.trees import each, join, named, nbytes

CACHE_BYTES = 2**30  # of loaded clients
_LOOKED_AT = 64  # samples that are looked at before training


class LoadedClients:
    """Clients that a function loads when they are needed; the last used stay, within `cache` bytes."""

    def __init__(
        self,
        load: Callable[[int], Any],
        sizes: Sequence[int] | Tensor,
        *,
        classes: int | None = None,
        cache: int = CACHE_BYTES,
        fingerprint: str | None = None,
    ) -> None:
        self._load, self._classes, self._cache_bytes, self._word = load, classes, cache, fingerprint
        self.sizes = torch.as_tensor(sizes, dtype=torch.int64)
        self._ends = self.sizes.cumsum(0)
        self._loaded: OrderedDict[int, Samples] = OrderedDict()
        self._like: InMemory | None = None  # a few samples of client 0, like which all others must be

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_loaded": OrderedDict()}

    @property
    def size(self) -> int:
        """Return how many there are."""
        return int(self._ends[-1])

    def take(self, rows: Tensor) -> Batch:
        """Return inputs and targets of these rows, from as many clients as they belong to."""
        owners = torch.searchsorted(self._ends, rows, right=True)
        order = owners.argsort(stable=True)
        found = [self._rows_of(client, rows[owners == client]) for client in sorted(set(owners.tolist()))]
        if len(found) == 1:
            return found[0]
        back = order.argsort()  # from client by client to the order asked for
        x, y = (each(lambda one: one[back], join(trees)) for trees in zip(*found, strict=True))
        return x, y

    def part(self, start: int, stop: int) -> Batch:
        """Return inputs and targets of consecutive rows."""
        return self.take(torch.arange(start, min(stop, self.size)))

    def sample(self) -> InMemory:
        """Return some samples of the first client."""
        if self._like is None:
            own = self.client(0)
            self._like = InMemory(*own.part(0, min(_LOOKED_AT, own.size)))
        return self._like

    def identity(self) -> str:
        """Return what the fingerprint says of samples that it does not cover."""
        return self._word if self._word is not None else stable_name(self._load)

    def client(self, client: int) -> Samples:
        """Return the samples of a client."""
        if client in self._loaded:
            self._loaded.move_to_end(client)
            return self._loaded[client]
        found = self._checked(client)
        self._loaded[client] = found
        while len(self._loaded) > 1 and sum(map(_nbytes, self._loaded.values())) > self._cache_bytes:
            self._loaded.popitem(last=False)
        return found

    def _rows_of(self, client: int, rows: Tensor) -> Batch:
        found, own = self.client(client), rows - (self._ends[client] - self.sizes[client])
        batch = found.take(own)
        if not isinstance(found, InMemory):  # not looked at when it was loaded
            check_values(batch, self._classes, lambda row: (client, int(own[row])))
        return batch

    def _checked(self, client: int) -> Samples:
        owner = f"client {client}"
        found = loaded(self._load, client)
        if found.size != self.sizes[client]:
            raise DataError(
                f"{owner}: load({client}) gave {found.size} samples, but sizes says {self.sizes[client]}"
            )
        if client > 0:
            check_alike(found.sample(), self.sample(), owner, "client 0")
        check_values(found.sample(), self._classes, lambda row: (client, row))
        return found


class ReadDatasets:
    """Map-style datasets one after another, whose samples are read one by one when they are needed."""

    def __init__(
        self, datasets: Sequence[Any], *, x: Columns = None, y: Columns = None, classes: int | None = None
    ) -> None:
        self._datasets, self._columns, self._classes = list(datasets), (x, y), classes
        self.sizes = torch.tensor([len(dataset) for dataset in datasets])
        self._ends = self.sizes.cumsum(0)

    @property
    def size(self) -> int:
        """Return how many there are."""
        return int(self._ends[-1])

    def take(self, rows: Tensor) -> Batch:
        """Return inputs and targets of these rows."""
        owners = torch.searchsorted(self._ends, rows, right=True)
        own = rows - (self._ends - self.sizes)[owners]
        pairs = list(zip(owners.tolist(), own.tolist(), strict=True))
        batch = stacked((self._read(*pair) for pair in pairs), *self._columns)
        check_values(batch, self._classes, lambda row: pairs[row])
        return batch

    def _read(self, owner: int, row: int) -> Any:
        try:
            return self._datasets[owner][row]
        except Exception as problem:
            what = f"{type(problem).__name__}: {problem}".splitlines()[0]
            raise DataError(f"client {owner}: its dataset failed at index {row} with {what}") from problem

    def part(self, start: int, stop: int) -> Batch:
        """Return inputs and targets of consecutive rows."""
        return self.take(torch.arange(start, min(stop, self.size)))

    def sample(self) -> InMemory:
        """Return the first few, and the first of every further dataset."""
        first = torch.arange(min(8, int(self.sizes[0])))
        others = (self._ends - self.sizes)[1:_LOOKED_AT]
        return InMemory(*self.take(torch.cat([first, others])))

    def identity(self) -> str:
        """Return what the fingerprint says of samples that it does not cover."""
        return ", ".join(sorted({type(dataset).__name__ for dataset in self._datasets}))


class _GivenClients:
    """Clients that are given as samples, as a function."""

    def __init__(self, clients: Sequence[Samples]) -> None:
        self._clients = clients

    def __repr__(self) -> str:
        return f"{len(self._clients)} memory-mapped clients"

    def __call__(self, client: int) -> Samples:
        return self._clients[client]


def check_values(batch: Batch, classes: int | None, owner: Callable[[int], tuple[int, int]]) -> None:
    """Refuse NaN, and labels that are no class; `owner` says whose sample a row is, and which of its own."""
    x, y = batch
    for name, tensor in (*named(x, "x"), *named(y, "y")):
        row = first_infinite(tensor)
        if row is not None:
            client, own = owner(row)
            raise DataError(
                f"client {client}: {name}[{own}] holds NaN or infinity: clean or drop that sample"
            )
    if classes is None or not isinstance(y, Tensor) or y.is_floating_point():
        return
    wrong = ((y < 0) | (y >= classes)).reshape(len(y), -1).any(1).nonzero()
    if len(wrong):
        client, own = owner(int(wrong[0]))
        raise DataError(
            f"client {client}: y[{own}] is {y[int(wrong[0])].tolist()}, but there are {classes} classes: "
            f"labels lie in 0 … {classes - 1}"
        )


def loaded(load: Callable[[int], Any], client: int) -> Samples:
    """Return what a user's function loads for a client, as samples."""
    owner = f"client {client}: load({client})"
    try:
        found = load(client)
    except Exception as problem:
        what = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise DataError(f"{owner} failed with {what}") from problem
    if isinstance(found, Samples):
        return found
    if isinstance(found, TorchDataset):
        return InMemory(*arrays(found))
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise DataError(f"{owner} gave {type(found).__name__}: it must give a pair (x, y) of arrays")
    x, y = found
    return samples_of(x, y, owner)


def given_clients(clients: Sequence[tuple[Any, Any]], classes: int | None) -> LoadedClients | None:
    """Return clients of whose arrays some are memory-mapped; None where none is."""
    if not any(map(is_mapped, clients)):
        return None
    found = [samples_of(x, y, f"client {client}") for client, (x, y) in enumerate(clients)]
    return LoadedClients(_GivenClients(found), [one.size for one in found], classes=classes)


def _nbytes(samples: Samples) -> int:
    return sum(map(nbytes, samples)) if isinstance(samples, InMemory) else 0
