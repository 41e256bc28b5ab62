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

from fedkeel.common.errors import DataError
from fedkeel.common.identity import stable_name
from fedkeel.common.summary import as_html, as_text
from fedkeel.data.arguments import as_list, check_options, is_pair, whole_numbers
from fedkeel.data.arrays import Columns, arrays, check_map_style
from fedkeel.data.client_rows import ClientRows, hold_out_rows
from fedkeel.data.client_tests import with_own_tests
from fedkeel.data.lazy import CACHE_BYTES, LoadedClients, ReadDatasets, given_clients, loaded
from fedkeel.data.mapped import samples_of
from fedkeel.data.pooling import offsets_of, pooled
from fedkeel.data.samples import (
    Batch,
    InMemory,
    Rows,
    Samples,
    as_samples,
    check_alike,
    first_infinite,
    tensors_of,
)
from fedkeel.data.tables import in_numbers
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.trees import Tree, count, described, named, split

__all__ = ["Augmentation", "Batch", "Federation", "Transform"]

Transform: TypeAlias = Callable[[Tree], Tree]
Augmentation: TypeAlias = Callable[[Tree, torch.Generator], Tree]

_BLOCK = 2048  # samples gathered and transformed at once: few calls, little memory


@dataclass(frozen=True, eq=False)
class Federation:
    """A pool of samples; client i owns its rows `index[offsets[i]:offsets[i + 1]]`.

    Inputs and targets are tensors, or tuples and dicts of tensors. Samples stay in their compact form (images
    as uint8); `transform` makes a batch what the model takes and `augment` varies it, keyed by (seed, round,
    client). The first `len(self)` clients take part in training; `held_out` further ones never do and serve
    to measure participation gaps. `validation` are rows that were taken from clients to select models and
    settings by: nobody trains on them, nor on the rows of `client_tests`, the clients' own test sets.
    """

    pool: Samples
    index: Tensor
    offsets: Tensor
    test: Samples | None = None
    transform: Transform | None = None
    augment: Augmentation | None = None
    classes: int | None = None
    held_out: int = 0
    validation: ClientRows | None = None
    client_tests: ClientRows | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pool", as_samples(self.pool))
        object.__setattr__(self, "test", None if self.test is None else as_samples(self.test))
        self._check_options()
        self._check_counts()
        sizes = self.offsets.diff()
        if len(sizes) - self.held_out < 1:
            raise DataError("a federation needs at least one client that takes part")
        if bool((sizes < 1).any()):
            empty = int((sizes < 1).nonzero()[0])
            raise DataError(f"client {empty} has no samples: leave it out, or split over fewer clients")

    def _check_options(self) -> None:
        classes = self.classes
        if classes is not None and (isinstance(classes, bool) or not isinstance(classes, int) or classes < 1):
            raise DataError(f"classes = {classes!r}: give the number of classes, or None for real numbers")
        for name in ("transform", "augment"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise DataError(f"{name} = {given!r}: give a function of a batch of inputs, or None")

    def _check_counts(self) -> None:
        """Refuse samples in memory that lack a target or hold NaN; others are checked when loaded."""
        for prefix, samples in self._sets():
            if not isinstance(samples, InMemory):
                continue
            if count(samples.x) != count(samples.y):
                raise DataError(
                    f"{count(samples.x)} {prefix}samples but {count(samples.y)} targets: give one target per "
                    "sample"
                )
            for name, tensor in _named(samples, prefix):
                row = first_infinite(tensor)
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
        sizes, (x, y) = self.sizes, self.pool.sample()
        facts = {
            "per client": f"{int(sizes.min())} to {int(sizes.max())} samples, median {int(sizes.median())}",
            "inputs": described(x),
            "targets": described(y) if self.classes is None else f"{self.classes} classes",
            "test set": "none" if self.test is None else f"{self.test.size:,} samples",
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

        x and y may also be tuples or dicts of arrays: the model gets a tuple as its arguments and a dict as
        its keyword arguments, the loss gets targets as they are. pandas' DataFrames and Series will do.
        Targets that are words become class numbers in the order of the alphabet; `origin["labels"]` says
        which is which. Memory-mapped arrays stay in their files. `client_tests` holds a test set per client,
        or None.
        """
        clients = as_list(clients, "a list with one (x, y) pair per client")
        check_options(options)
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
        if mapped := given_clients(clients, options.get("classes")):
            return cls._lazy(mapped, test, **options)
        first = tensors_of(*clients[0], "client 0")
        checked_test = None if test is None else tensors_of(*test, "the test set")
        if checked_test is not None:
            check_alike(checked_test, first, "the test set", "client 0")
        pool, sizes = pooled(clients)
        return cls(pool, torch.arange(pool.size), offsets_of(sizes), checked_test, **options)

    @classmethod
    def from_datasets(
        cls,
        clients: Sequence[Any],
        test: Any = None,
        *,
        x: Columns = None,
        y: Columns = None,
        lazy: bool = False,
        **options: Any,
    ) -> Federation:
        """Build a federation from one map-style `Dataset`, of torch or Hugging Face, per client.

        `x` and `y` name columns where samples have names. All samples are read at once and kept as tensors;
        with `lazy` each is read whenever it is needed.
        """
        clients = as_list(clients, "a list with one dataset per client")
        check_options(options)
        for dataset in clients:
            check_map_style(dataset)
        if lazy:
            pool = ReadDatasets(clients, x=x, y=y, classes=options.get("classes"))
            return cls._lazy(pool, test if is_pair(test) else ReadDatasets([test], x=x, y=y), **options)
        pairs = [arrays(client, x=x, y=y) for client in clients]
        return cls.from_arrays(pairs, test if is_pair(test) else arrays(test, x=x, y=y), **options)

    @classmethod
    def from_clients(
        cls,
        count: int,
        load: Callable[[int], Any],
        *,
        sizes: Sequence[int] | None = None,
        test: Any = None,
        classes: int | None = None,
        cache: int = CACHE_BYTES,
        fingerprint: str | None = None,
        **options: Any,
    ) -> Federation:
        """Build a federation whose clients are loaded when they are needed: `load(client)` gives `(x, y)`.

        Give `sizes`, the number of samples of each client; without it every client is loaded once, here. The
        clients last used stay in memory, up to `cache` bytes. `classes` is how many there are, None for real
        numbers as targets. A resumed run must have the same data: its `fingerprint` is the text given here,
        else it covers the sizes, the first samples of client 0, and the function's source.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise DataError(f"from_clients: count = {count!r}: give the number of clients, at least 1")
        if not callable(load):
            raise DataError(
                f"from_clients: load = {load!r}: give a function of a client's number that returns (x, y)"
            )
        if isinstance(cache, bool) or not isinstance(cache, int) or cache < 0:
            raise DataError(f"from_clients: cache = {cache!r}: give a number of bytes, as in 2**30")
        check_options(options)
        if sizes is None:
            sizes = [loaded(load, client).size for client in range(count)]
        sizes = whole_numbers(sizes)
        if len(sizes) != count:
            raise DataError(f"from_clients: {len(sizes)} sizes for {count} clients: give one per client")
        pool = LoadedClients(load, sizes, classes=classes, cache=cache, fingerprint=fingerprint)
        return cls._lazy(pool, test, classes=classes, **options)

    @classmethod
    def _lazy(cls, pool: LoadedClients | ReadDatasets, test: Any, **options: Any) -> Federation:
        """Return a federation whose clients own consecutive rows of a pool that is not in memory."""
        if isinstance(test, torch.utils.data.Dataset):
            test = InMemory(*arrays(test))
        if test is not None and not isinstance(test, Samples):
            x, y = test
            test = samples_of(x, y, "the test set")
        if test is not None:
            check_alike(test.sample(), pool.sample(), "the test set", "client 0")
        return cls(pool, torch.arange(pool.size), offsets_of(pool.sizes), test, **options)

    @property
    def sizes(self) -> Tensor:
        """Return the number of samples of every client that can be drawn."""
        return self.offsets.diff()[: len(self)]

    @property
    def mean_size(self) -> float:
        """Return the mean number of samples of the clients that can be drawn; it costs one look-up."""
        return int(self.offsets[len(self)]) / len(self)

    def size(self, client: int) -> int:
        """Return a client's number of samples."""
        return int(self.offsets[client + 1] - self.offsets[client])

    def rows(self, client: int) -> Tensor:
        """Return the indices of a client's samples in the pool."""
        if not 0 <= client < len(self.offsets) - 1:
            raise DataError(f"there is no client {client}: they are numbered 0 to {len(self.offsets) - 2}")
        return self.index[int(self.offsets[client]) : int(self.offsets[client + 1])]

    def samples(self, client: int) -> Batch:
        """Return a client's samples as stored."""
        return self.pool.take(self.rows(client))

    def pick(self, rows: Tensor) -> Batch:
        """Return samples of the pool as stored."""
        return self.pool.take(rows)

    @property
    def x(self) -> Tree:
        """Return the inputs of the pool, which must be in memory."""
        return self._in_memory.x

    @property
    def y(self) -> Tree:
        """Return the targets of the pool, which must be in memory."""
        return self._in_memory.y

    @property
    def _in_memory(self) -> InMemory:
        if not isinstance(self.pool, InMemory):
            raise DataError(
                "the samples are loaded when needed: federation.samples(client) returns a client's"
            )
        return self.pool

    @cached_property
    def everything(self) -> Samples:
        """Return the samples of all clients that take part."""
        rows = self.index[: int(self.offsets[len(self)])]
        if len(rows) == self.pool.size and bool((rows.bincount() == 1).all()):
            return self.pool
        return InMemory(*self.pick(rows)) if isinstance(self.pool, InMemory) else Rows(self.pool, rows)

    @cached_property
    def validation_samples(self) -> Samples | None:
        """Return the validation data of the clients that take part: rows of the pool, no copies."""
        return None if self.validation is None else Rows(self.pool, self.validation.first(len(self)))

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
            sizes = [len(batch) for batch in block]
            yield from zip(split(self._prepare_varied(x, generator), sizes), split(y, sizes), strict=True)

    def _prepare_varied(self, x: Tree, generator: torch.Generator | None) -> Tree:
        """Return stored samples as the model takes them, varied where a generator is given."""
        if self.augment is None or generator is None:
            return self.prepare(x)
        if getattr(self.augment, "after_transform", False):
            return self.augment(self.prepare(x), generator)
        return self.prepare(self.augment(x, generator))

    def prepare(self, x: Tree) -> Tree:
        """Return stored samples as the model takes them."""
        return x if self.transform is None else self.transform(x)

    def hold_out(self, clients: int) -> Federation:
        """Keep the last `clients` clients out of training."""
        if isinstance(clients, bool) or not isinstance(clients, int) or not 0 <= clients < len(self):
            raise DataError(
                f"cannot hold out {clients} of {len(self)} clients: at least one must take part: hold out at "
                f"most {len(self) - 1}"
            )
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
        """Return a hash of the samples that are in memory, of the targets and the split."""
        digest = hashlib.sha256()
        parts = [("validation", self.validation), ("client tests", self.client_tests)]
        further = [(name, tensor) for name, rows in parts if rows is not None for tensor in rows]
        samples = [found for prefix, one in self._sets() for found in _named(one.sample(), prefix)]
        for name, tensor in (*samples, ("index", self.index), ("offsets", self.offsets), *further):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().data)
        for _, one in self._sets():
            digest.update(one.identity().encode())
        digest.update(stable_name((self.held_out, self.transform, self.augment)).encode())
        return digest.hexdigest()

    def _sets(self) -> list[tuple[str, Samples]]:
        return [("", self.pool), *([] if self.test is None else [("test ", self.test)])]

    def describe_row(self, name: str, row: int) -> str:
        """Say in words whose sample a row of the pool (or of the test set) is."""
        if name.startswith("test"):
            return f"sample {row} of the test set"
        found = (self.index == row).nonzero()
        if len(found) == 0:
            return f"sample {row} of the pool"
        client = int(torch.searchsorted(self.offsets, found[0], right=True)) - 1
        return f"client {client}: {name}[{int(found[0]) - int(self.offsets[client])}]"


def _named(samples: InMemory, prefix: str) -> list[tuple[str, Tensor]]:
    return [*named(samples.x, f"{prefix}x"), *named(samples.y, f"{prefix}y")]


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
