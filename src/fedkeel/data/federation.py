"""The clients' data: one compact pool of samples and, for each client, which of them are its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedkeel.data.arrays import Batch, arrays
from fedkeel.data.client_rows import ClientRows, hold_out_rows
from fedkeel.data.client_tests import with_own_tests
from fedkeel.data.tables import in_numbers
from fedkeel.errors import DataError
from fedkeel.identity import stable_name
from fedkeel.streams import Stream
from fedkeel.summary import as_html, as_text

__all__ = ["Augmentation", "Batch", "Federation", "Transform"]

Transform: TypeAlias = Callable[[Tensor], Tensor]
Augmentation: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]

_CHECKED = 2**24  # numbers checked at once
_BLOCK = 2048  # samples gathered and transformed at once: few calls, little memory


@dataclass(frozen=True, eq=False)
class Federation:
    """Samples pooled in `x` and `y`; client i owns the rows `index[offsets[i]:offsets[i + 1]]`.

    Samples stay in their compact form (images as uint8); `transform` makes a batch what the model takes and
    `augment` varies it, keyed by (seed, round, client). The first `len(self)` clients take part in
    training; `held_out` further ones never do and serve to measure participation gaps. `validation` are rows
    that were taken from clients to select models and settings by: nobody trains on them, nor on the rows of
    `client_tests`, the clients' own test sets.
    """

    x: Tensor
    y: Tensor
    index: Tensor
    offsets: Tensor
    test: Batch | None = None
    transform: Transform | None = None
    augment: Augmentation | None = None
    classes: int | None = None
    held_out: int = 0
    validation: ClientRows | None = None
    client_tests: ClientRows | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} samples but {len(self.y)} targets: give one target per sample")
        sizes = self.offsets.diff()
        if len(sizes) - self.held_out < 1:
            raise DataError("a federation needs at least one client that takes part")
        if bool((sizes < 1).any()):
            empty = int((sizes < 1).nonzero()[0])
            raise DataError(f"client {empty} has no samples: leave it out, or split over fewer clients")
        for name, tensor in self._tensors():
            row = _first_infinite(tensor)
            if row is not None:
                raise DataError(
                    f"{self.describe_row(name, row)} holds NaN or infinity: clean or drop that sample"
                )

    def __len__(self) -> int:
        """Return the number of clients that can be drawn."""
        return len(self.offsets) - 1 - self.held_out

    def __repr__(self) -> str:
        return as_text(*self._summary())

    def _repr_html_(self) -> str:
        return as_html(*self._summary())

    def _summary(self) -> tuple[str, dict[str, str]]:
        sizes, kind = self.sizes, str(self.y.dtype).removeprefix("torch.")
        targets = f"{kind} of shape {tuple(self.y.shape[1:])}"
        facts = {
            "per client": f"{int(sizes.min())} to {int(sizes.max())} samples, median {int(sizes.median())}",
            "inputs": f"{str(self.x.dtype).removeprefix('torch.')} of shape {tuple(self.x.shape[1:])}",
            "targets": targets if self.classes is None else f"{self.classes} classes",
            "test set": "none" if self.test is None else f"{len(self.test[0]):,} samples",
        }
        if self.validation is not None:
            facts["validation"] = f"{len(self.validation.first(len(self))):,} samples of the clients"
        if self.client_tests is not None:
            facts["client tests"] = f"{len(self.client_tests.first(len(self))):,} samples of the clients"
        if self.held_out:
            facts["held out"] = f"{self.held_out} further clients"
        origin = [f"{key} {value}" for key, value in self.origin.items() if key != "labels"]
        if origin:
            facts["origin"] = ", ".join(origin)
        return f"Federation: {len(self):,} clients, {int(sizes.sum()):,} samples", facts

    @classmethod
    def from_arrays(
        cls,
        clients: Sequence[tuple[Any, Any]],
        test: tuple[Any, Any] | None = None,
        *,
        client_tests: Sequence[tuple[Any, Any] | None] | None = None,
        **options: Any,
    ) -> Federation:
        """Build a federation from one `(x, y)` pair of arrays (or one torch `Dataset`) per client.

        pandas' DataFrames and Series will do. Targets that are words become class numbers in the order of the
        alphabet; `origin["labels"]` says which is which. `client_tests` holds a test set per client, or None.
        """
        if len(clients) == 0:
            raise DataError("no clients given: pass a list with one (x, y) pair per client")
        if client_tests is not None:
            return with_own_tests(
                lambda all_of: cls.from_arrays(all_of, test, **options), clients, client_tests
            )
        if isinstance(clients[0], torch.utils.data.Dataset):
            return cls.from_datasets(clients, test, **options)
        clients, test, labels = in_numbers(clients, test)
        if labels is not None:
            options = {"classes": len(labels), **options}
            options["origin"] = {**options.get("origin", {}), "labels": labels}
        first = _pair(*clients[0], "client 0")
        checked_test = None if test is None else _pair(*test, "the test set")
        if checked_test is not None:
            _check_alike(checked_test, first, "the test set", "client 0")
        x, y, sizes = _pool_arrays(clients) or _pool(clients)
        return cls(
            x=x,
            y=y,
            index=torch.arange(len(x)),
            offsets=torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)]),
            test=checked_test,
            **options,
        )

    @classmethod
    def from_datasets(cls, clients: Sequence[Any], test: Any = None, **options: Any) -> Federation:
        """Build a federation from one map-style torch `Dataset` per client."""
        pairs = [arrays(client) for client in clients]
        return cls.from_arrays(pairs, None if test is None else arrays(test), **options)

    @property
    def sizes(self) -> Tensor:
        """Return the number of samples of every client that can be drawn."""
        return self.offsets.diff()[: len(self)]

    def rows(self, client: int) -> Tensor:
        """Return the indices of a client's samples in the pool."""
        return self.index[int(self.offsets[client]) : int(self.offsets[client + 1])]

    def samples(self, client: int) -> Batch:
        """Return a client's samples as stored."""
        rows = self.rows(client)
        return self.x[rows], self.y[rows]

    def pick(self, rows: Tensor) -> Batch:
        """Return samples of the pool as stored; five times faster than indexing."""
        return self.x.index_select(0, rows), self.y.index_select(0, rows)

    @cached_property
    def everything(self) -> Batch:
        """Return the samples of all clients that take part: evaluation data if there is no test set."""
        rows = self.index[: int(self.offsets[len(self)])]
        whole = len(rows) == len(self.x) and bool((rows.bincount() == 1).all())
        return (self.x, self.y) if whole else (self.x[rows], self.y[rows])

    def batches(self, client: int, order: Sequence[np.ndarray], stream: Stream) -> Iterator[Batch]:
        """Yield a client's minibatches in the given order, ready for the model."""
        rows = self.rows(client)
        generator = None
        if self.augment is None and len(order) > 1 and all(batch is order[0] for batch in order):
            x, y = self.samples(client)  # the whole data in every step: prepare it once
            yield from [(self.prepare(x), y)] * len(order)
            return
        if self.augment is not None:
            generator = torch.Generator().manual_seed(stream.branch("augment").integer())
        for block in _blocks(order):
            x, y = self.pick(rows[torch.from_numpy(np.concatenate(block))])
            if self.augment is not None and generator is not None:
                x = self.augment(x, generator)
            sizes = [len(batch) for batch in block]
            yield from zip(torch.split(self.prepare(x), sizes), torch.split(y, sizes), strict=True)

    def prepare(self, x: Tensor) -> Tensor:
        """Return stored samples as the model takes them."""
        return x if self.transform is None else self.transform(x)

    def hold_out(self, clients: int) -> Federation:
        """Keep the last `clients` clients out of training."""
        if not 0 <= clients < len(self):
            raise DataError(f"cannot hold out {clients} of {len(self)} clients: at least one must take part")
        return replace(self, held_out=self.held_out + clients)

    def with_validation(self, share: float, *, seed: int = 0) -> Federation:
        """Hold a share of every client's samples out of its training, to select models and settings by."""
        return self._holding_out("validation", share, seed)

    def with_client_tests(self, share: float, *, seed: int = 0) -> Federation:
        """Make a share of every client's samples its own test set: `result.per_client()` evaluates on it."""
        return self._holding_out("client_tests", share, seed)

    def _holding_out(self, purpose: str, share: float, seed: int) -> Federation:
        if getattr(self, purpose) is not None:
            raise DataError(f"{purpose} = {share!r}: the clients' samples are held out already: do it once")
        own, stream = ClientRows(self.index, self.offsets), Stream(seed).branch(purpose)
        left, taken = hold_out_rows(own, len(self), share, stream, purpose)
        origin = {**self.origin, purpose: share, f"{purpose}_seed": seed}
        changed: dict[str, Any] = {purpose: taken}
        return replace(self, index=left.rows, offsets=left.offsets, origin=origin, **changed)

    def fingerprint(self) -> str:
        """Return a hash of all samples, targets and the split."""
        digest = hashlib.sha256()
        parts = [("validation", self.validation), ("client tests", self.client_tests)]
        further = [(name, tensor) for name, rows in parts if rows is not None for tensor in rows]
        own = (("index", self.index), ("offsets", self.offsets))
        for name, tensor in (*self._tensors(), *own, *further):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().data)
        digest.update(stable_name((self.held_out, self.transform, self.augment)).encode())
        return digest.hexdigest()

    def _tensors(self) -> list[tuple[str, Tensor]]:
        test = [] if self.test is None else [("test x", self.test[0]), ("test y", self.test[1])]
        return [("x", self.x), ("y", self.y), *test]

    def describe_row(self, name: str, row: int) -> str:
        """Say in words whose sample a row of the pool (or of the test set) is."""
        if name.startswith("test"):
            return f"sample {row} of the test set"
        found = (self.index == row).nonzero()
        if len(found) == 0:
            return f"sample {row} of the pool"
        client = int(torch.searchsorted(self.offsets, found[0], right=True)) - 1
        return f"client {client}: {name}[{int(found[0]) - int(self.offsets[client])}]"


def _first_infinite(tensor: Tensor) -> int | None:
    """Return the first row that holds NaN or infinity, with little memory beside the data."""
    if not tensor.is_floating_point():
        return None
    seen = 0
    for part in torch.split(tensor, max(1, _CHECKED * len(tensor) // max(1, tensor.numel()))):
        finite = torch.isfinite(part)
        if not bool(finite.all()):
            return seen + int((~finite.reshape(len(part), -1)).any(1).nonzero()[0])
        seen += len(part)
    return None


def _blocks(order: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Group consecutive minibatches so that each group is gathered at once."""
    block: list[np.ndarray] = []
    filled = 0
    for batch in order:
        if block and filled + len(batch) > _BLOCK:
            yield block
            block, filled = [], 0
        block.append(batch)
        filled += len(batch)
    if block:
        yield block


def _pool(clients: Sequence[tuple[Any, Any]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return all samples, all targets and each client's count, of anything that makes tensors."""
    pairs = [_pair(x, y, f"client {i}") for i, (x, y) in enumerate(clients)]
    for i, pair in enumerate(pairs):
        _check_alike(pair, pairs[0], f"client {i}", "client 0")
    sizes = torch.tensor([len(x) for x, _ in pairs])
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]), sizes


def _pool_arrays(clients: Sequence[tuple[Any, Any]]) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the same for NumPy arrays without faults, ten times faster; None for anything else."""
    xs, ys = [x for x, _ in clients], [y for _, y in clients]
    for parts in (xs, ys):
        if not all(type(array) is np.ndarray and array.ndim for array in parts):
            return None
        if len({(array.dtype, array.shape[1:]) for array in parts}) > 1:
            return None
    sizes = [len(x) for x in xs]
    if min(sizes) == 0 or sizes != [len(y) for y in ys]:
        return None
    return *_pair(np.concatenate(xs), np.concatenate(ys), "the clients"), torch.tensor(sizes)


def _pair(x: Any, y: Any, owner: str) -> Batch:
    try:
        x, y = torch.as_tensor(x), torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise DataError(f"{owner}: cannot make tensors of its arrays: {problem}") from None
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise DataError(
            f"{owner}: x has shape {tuple(x.shape)} and y {tuple(y.shape)}: give one row of y per row of x"
        )
    if len(x) == 0:
        raise DataError(f"{owner} has no samples: leave it out")
    return x, y if y.is_floating_point() else y.long()


def _check_alike(pair: Batch, first: Batch, owner: str, model: str) -> None:
    for name, ours, theirs in (("x", pair[0], first[0]), ("y", pair[1], first[1])):
        alike = ours.dtype == theirs.dtype or (ours.is_floating_point() and theirs.is_floating_point())
        if ours.shape[1:] != theirs.shape[1:] or not alike:
            raise DataError(
                f"{owner}: a row of {name} is {ours.dtype} of shape {tuple(ours.shape[1:])}, "
                f"but {model} has {theirs.dtype} of shape {tuple(theirs.shape[1:])}: make them alike"
            )
