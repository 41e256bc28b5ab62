"""Splits: which client gets which sample.

A splitter is a frozen value that one calls: `splitter(labels, clients, rng, groups)` gives one int64
index array per client, sorted in rising order. All randomness comes from `rng`, no client is ever
empty, and every call ends: nothing is drawn again until it fits, shortages are repaired instead.
All splitters but `DirichletByClient(replacement=True)` give a sample to at most one client.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkeel.common.errors import ConfigError, DataError
from fedkeel.common.frozen import AsGiven, frozen
from fedkeel.data.allocation import (
    Ints,
    assign_classes,
    by_client,
    class_pools,
    client_sizes,
    dirichlet_logits,
    draw_classes,
    even,
    normalise,
    redraw_exhausted,
    repair,
)


class Splitter(Protocol):
    """What `Dataset.split` takes; any function with this signature will do."""

    def __call__(
        self, labels: NDArray[Any], clients: int, rng: np.random.Generator, groups: NDArray[Any] | None
    ) -> list[Ints]:
        """One sorted int64 index array for each of the `clients` clients."""
        ...


@frozen
class IID:
    """Every client gets a random share of all samples.

    Sizes differ by at most one, or follow a lognormal law: `lognormal` is the standard deviation of
    the logarithm of a client's size (FedDyn's unbalanced setting uses 0.3). `balanced=True` also gives
    every client the same mixture of classes: each class's samples go to the clients in turn.
    """

    balanced: AsGiven[bool] = False
    lognormal: AsGiven[float] = 0.0

    def __post_init__(self) -> None:
        _check_bool(self, "balanced", self.balanced)
        _check_lognormal(self, self.lognormal)

    def __call__(
        self, labels: NDArray[Any], clients: int, rng: np.random.Generator, groups: NDArray[Any] | None = None
    ) -> list[Ints]:
        """Allocate the samples to `clients` clients."""
        _check_enough(self, len(labels), clients)
        sizes = client_sizes(len(labels), clients, self.lognormal, rng)
        owner = np.repeat(np.arange(clients), sizes)
        if not self.balanced:
            return by_client(owner, rng.permutation(len(labels)), clients)
        turn = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = (turn + 0.5) / sizes[owner] if self.lognormal else turn
        pools = class_pools(_classes(self, labels)[0], rng)
        return by_client(owner[np.argsort(order, kind="stable")], pools, clients)


@frozen
class DirichletByClass:
    """Each class's samples are spread over the clients with shares drawn from Dir(alpha).

    This is the split of Rethinking (p_c ~ Dir_N(alpha)): client sizes differ, strongly so for a small
    alpha. A client gets the floor or the ceiling of its share of a class, and the share itself in
    expectation. Clients left with fewer than `min_samples` receive random samples of the largest
    clients, which are cut to a common level, as high as possible.
    """

    alpha: AsGiven[float]
    min_samples: AsGiven[int] = 1

    def __post_init__(self) -> None:
        _check_alpha(self, self.alpha)
        _check_whole(self, "min_samples", self.min_samples)

    def __call__(
        self, labels: NDArray[Any], clients: int, rng: np.random.Generator, groups: NDArray[Any] | None = None
    ) -> list[Ints]:
        """Spread each class over `clients` clients."""
        _check_enough(self, len(labels), clients, self.min_samples)
        which, count = _classes(self, labels)
        shares = normalise(dirichlet_logits(self.alpha, (len(count), clients), rng), self.alpha)
        ends = np.cumsum(shares, axis=1)
        ends *= count[:, None] / ends[:, -1:]
        # A random phase per class: without it, an even share of less than one sample would always
        # fall to the same clients, in every class.
        cuts = np.minimum(np.floor(ends + rng.random((len(count), 1))), count[:, None]).astype(np.int64)
        cuts[:, -1] = count
        amounts = np.diff(cuts, axis=1, prepend=0)
        owner = np.repeat(np.tile(np.arange(clients), len(count)), amounts.ravel())
        owner = repair(owner, clients, self.min_samples, rng)
        return by_client(owner, class_pools(which, rng), clients)


@frozen
class DirichletByClient:
    """Each client draws a class prior from Dir(alpha), then its samples class by class from it.

    Sizes are equal (they differ by at most one) or lognormal as in `IID`. Without replacement
    (FedDyn, FedSAGD) all samples are allocated: clients draw in a random interleaved order and a class
    that has run out leaves everybody's prior, which is renormalised. With replacement (FedInit) a
    class's pool is refilled when it runs out, so clients keep their priors and share samples; within
    a client a sample repeats only if the client wants more of a class than there is.
    """

    alpha: AsGiven[float]
    replacement: AsGiven[bool] = False
    lognormal: AsGiven[float] = 0.0

    def __post_init__(self) -> None:
        _check_bool(self, "replacement", self.replacement)
        _check_alpha(self, self.alpha)
        _check_lognormal(self, self.lognormal)

    def __call__(
        self, labels: NDArray[Any], clients: int, rng: np.random.Generator, groups: NDArray[Any] | None = None
    ) -> list[Ints]:
        """Fill `clients` clients, each by its own prior over the classes."""
        total = max(len(labels), clients) if self.replacement and len(labels) else len(labels)
        _check_enough(self, total, clients)
        which, count = _classes(self, labels)
        owner = np.repeat(np.arange(clients), client_sizes(total, clients, self.lognormal, rng))
        logits = dirichlet_logits(self.alpha, (clients, len(count)), rng)
        drawn = draw_classes(normalise(logits, self.alpha), owner, rng)
        if not self.replacement:
            owner, drawn = redraw_exhausted(owner, drawn, logits, alpha=self.alpha, count=count, rng=rng)
        order = np.argsort(drawn, kind="stable")
        nth = np.arange(total) - np.searchsorted(drawn[order], drawn[order])
        first = np.cumsum(count) - count
        samples = class_pools(which, rng)[first[drawn[order]] + nth % count[drawn[order]]]
        return by_client(owner[order], samples, clients)


@frozen
class Pathological:
    """Each client holds exactly `classes` classes (after McMahan et al. 2017).

    Classes are assigned from a shuffled list, and a new one when it is used up, so all classes have
    nearly equally many holders; a class's samples are shared equally by its holders.
    """

    classes: AsGiven[int]

    def __post_init__(self) -> None:
        _check_whole(self, "classes", self.classes)

    def __call__(
        self, labels: NDArray[Any], clients: int, rng: np.random.Generator, groups: NDArray[Any] | None = None
    ) -> list[Ints]:
        """Assign classes to clients, then share each class among its holders."""
        _check_enough(self, len(labels), clients)
        which, count = _classes(self, labels)
        if self.classes > len(count):
            raise DataError(
                f"{self} asks for more classes than the {len(count)} there are; use at most {len(count)}"
            )
        if clients * self.classes < len(count):
            raise DataError(
                f"{self} on {clients} clients covers {clients * self.classes} of {len(count)} classes; "
                f"use {math.ceil(len(count) / self.classes)} clients or more"
            )
        assigned = assign_classes(len(count), self.classes, clients, rng)
        holders = np.bincount(assigned.ravel(), minlength=len(count))
        if (scarce := np.flatnonzero(count < holders)).size:
            c = scarce[0]
            raise DataError(
                f"{self} on {clients} clients gives class {np.unique(labels)[c]} to {holders[c]} clients, "
                f"but it has {count[c]} samples; use fewer clients or fewer classes per client"
            )
        order = np.argsort(assigned.ravel(), kind="stable")
        amounts = np.concatenate([even(n, k) for n, k in zip(count, holders, strict=True)])
        owner = np.repeat(order // self.classes, amounts)
        return by_client(owner, class_pools(which, rng), clients)


@frozen
class Natural:
    """One client per natural group of the data (a role, a writer), or per class with `by="class"`.

    Groups of fewer than `min_samples` are left out; of a group with more than `max_samples` a random
    window of consecutive samples is kept, as FedDyn does with Shakespeare. If there are more groups
    than `clients`, a random choice of them takes part, in the order of their numbers.
    """

    by: AsGiven[Literal["group", "class"]] = "group"
    max_samples: AsGiven[int | None] = None
    min_samples: AsGiven[int] = 1

    def __post_init__(self) -> None:
        if self.by not in ("group", "class"):
            raise ConfigError(f"Natural(by={self.by!r}) is neither 'group' nor 'class'")
        _check_whole(self, "min_samples", self.min_samples)
        if self.max_samples is not None:
            _check_whole(self, "max_samples", self.max_samples)

    def clients(self, labels: NDArray[Any], groups: NDArray[Any] | None = None) -> int:
        """How many groups are large enough to be a client."""
        return int((self._members(labels, groups)[1] >= self.min_samples).sum())

    def __call__(
        self, labels: NDArray[Any], clients: int, rng: np.random.Generator, groups: NDArray[Any] | None = None
    ) -> list[Ints]:
        """Make `clients` of the groups clients."""
        which, count = self._members(labels, groups)
        fit = np.flatnonzero(count >= self.min_samples)
        _check_whole(self, "clients", clients)
        if clients > len(fit):
            raise DataError(
                f"{self} cannot make {clients} clients: {len(fit)} groups have {self.min_samples} samples "
                f"or more; use at most {len(fit)} clients"
            )
        chosen = np.sort(rng.choice(fit, clients, replace=False)) if clients < len(fit) else fit
        keep = count[chosen] if self.max_samples is None else np.minimum(count[chosen], self.max_samples)
        start = (np.cumsum(count) - count)[chosen] + rng.integers(0, count[chosen] - keep + 1)
        owner = np.repeat(np.arange(clients), keep)
        nth = np.arange(len(owner)) - np.repeat(np.cumsum(keep) - keep, keep)
        return by_client(owner, np.argsort(which, kind="stable")[start[owner] + nth], clients)

    def _members(self, labels: NDArray[Any], groups: NDArray[Any] | None) -> tuple[Ints, Ints]:
        if self.by == "class":
            return _classes(self, labels)
        if groups is None:
            raise DataError(f"{self} needs data with natural groups, and this data has none; use IID()")
        _, which, count = np.unique(groups, return_inverse=True, return_counts=True)
        return which.astype(np.int64), count.astype(np.int64)


def _classes(splitter: object, labels: NDArray[Any]) -> tuple[Ints, Ints]:
    """Class number 0..C-1 of each sample, and the size of each class; refuses what is not a class."""
    if labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise DataError(
            f"{splitter} needs one class number per sample, not labels of type {labels.dtype} and shape "
            f"{labels.shape}; for real-valued targets use IID() or Natural()"
        )
    _, which, count = np.unique(labels, return_inverse=True, return_counts=True)
    return which.astype(np.int64), count.astype(np.int64)


def _check_enough(splitter: object, samples: int, clients: int, each: int = 1) -> None:
    _check_whole(splitter, "clients", clients)
    if clients * each > samples:
        raise DataError(
            f"{splitter} cannot give {clients} clients {each} sample{'s' * (each > 1)} each: "
            f"the data has {samples}; use at most {samples // each} clients"
        )


def _check_whole(splitter: object, name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigError(f"{splitter}: {name} is {value!r}; it must be a whole number of at least 1")


def _check_bool(splitter: object, name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{splitter}: {name} is {value!r}; it must be True or False")


def _check_alpha(splitter: object, alpha: float) -> None:
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 < alpha < math.inf:
        raise ConfigError(
            f"{splitter}: alpha is {alpha!r}; use a positive number (small: unlike clients, large: alike)"
        )


def _check_lognormal(splitter: object, sigma: float) -> None:
    if isinstance(sigma, bool) or not isinstance(sigma, Real) or not 0 <= sigma < math.inf:
        raise ConfigError(f"{splitter}: lognormal is {sigma!r}; it must be 0 (equal sizes) or positive")
