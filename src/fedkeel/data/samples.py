"""Where samples come from: trees of tensors in memory, some rows of those, or what loads them when asked."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.tensors.trees import Tree, count, each, named, part, structure, take

Batch: TypeAlias = tuple[Tree, Tree]


@runtime_checkable
class Samples(Protocol):
    """Samples by number."""

    @property
    def size(self) -> int:
        """Return how many there are."""

    def take(self, rows: Tensor) -> Batch:
        """Return inputs and targets of these rows, as stored."""

    def part(self, start: int, stop: int) -> Batch:
        """Return inputs and targets of consecutive rows, as stored."""

    def sample(self) -> InMemory:
        """Return what is looked at before training: all samples where they are in memory, else some."""

    def identity(self) -> str:
        """Return what the fingerprint says of samples beside those of `sample`."""


class InMemory(NamedTuple):
    """Inputs and targets in memory."""

    x: Tree
    y: Tree

    @property
    def size(self) -> int:
        """Return how many there are."""
        return count(self.y)

    def take(self, rows: Tensor) -> Batch:
        """Return inputs and targets of these rows."""
        return take(self.x, rows), take(self.y, rows)

    def part(self, start: int, stop: int) -> Batch:
        """Return inputs and targets of consecutive rows, as views."""
        return part(self.x, start, stop), part(self.y, start, stop)

    def sample(self) -> InMemory:
        """Return all of them."""
        return self

    def identity(self) -> str:
        """Return nothing: there are no others."""
        return ""


class Rows(NamedTuple):
    """Some of other samples, which are looked up when asked for."""

    of: Samples
    rows: Tensor

    @property
    def size(self) -> int:
        """Return how many there are."""
        return len(self.rows)

    def take(self, rows: Tensor) -> Batch:
        """Return inputs and targets of these rows."""
        return self.of.take(self.rows[rows])

    def part(self, start: int, stop: int) -> Batch:
        """Return inputs and targets of consecutive rows."""
        return self.of.take(self.rows[start:stop])

    def sample(self) -> InMemory:
        """Return the first few."""
        return InMemory(*self.part(0, 64))

    def identity(self) -> str:
        """Return what the fingerprint says of the others."""
        return self.of.identity()


def as_samples(data: Samples | Batch) -> Samples:
    """Return a pair of trees as samples; samples as they are."""
    return data if isinstance(data, Samples) else InMemory(*data)


def tensors_of(x: Any, y: Any, owner: str) -> InMemory:
    """Return arrays, or tuples and dicts of arrays, as tensors; targets that are whole numbers as int64."""
    found = InMemory(array_tree(x, owner), array_tree(y, owner))
    for name, tensor in (*named(found.x, "x"), *named(found.y, "y")):
        if tensor.ndim == 0 or len(tensor) != found.size:
            raise DataError(
                f"{owner}: {name} has shape {tuple(tensor.shape)} and {_first(found)}: give one row of y per "
                "row of x"
            )
    if found.size == 0:
        raise DataError(f"{owner} has no samples: leave it out")
    return found._replace(y=each(as_target, found.y))


def _first(found: InMemory) -> str:
    name, tensor = next(named(found.y, "y"))
    return f"{name} {tuple(tensor.shape)}"


def as_target(y: Tensor) -> Tensor:
    """Return targets as they are stored: classes as int64."""
    return y if y.is_floating_point() else y.long()


def array_tree(value: Any, owner: str, *, keep: type | tuple[type, ...] = ()) -> Tree:
    """Return arrays, or tuples and dicts of arrays, as tensors; a kind to keep stays what it is."""
    if isinstance(value, dict):
        if not value:
            raise DataError(f"{owner}: a dict without arrays: leave it out")
        return {key: array_tree(part, owner, keep=keep) for key, part in value.items()}
    if is_several(value):
        return tuple(array_tree(part, owner, keep=keep) for part in value)
    if keep and isinstance(value, keep):
        return value
    try:
        found = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError) as problem:
        raise DataError(f"{owner}: cannot make tensors of its arrays: {problem}") from None
    if found.layout is not torch.strided or found.is_complex():
        kind, fix = ("complex", "view_as_real(x)") if found.is_complex() else ("sparse", "to_dense()")
        raise DataError(f"{owner}: an array is {kind}, which models do not take: give it as torch's {fix}")
    return found


def is_several(value: Any) -> bool:
    """Tell whether a value is a tuple of arrays: several inputs or targets, not one array's rows."""
    return (
        isinstance(value, tuple)
        and len(value) > 0
        and all(hasattr(part, "shape") or isinstance(part, dict) for part in value)
    )


def check_alike(pair: InMemory, first: InMemory, owner: str, model: str) -> None:
    """Refuse samples that are built otherwise than those of another owner."""
    for name, ours, theirs in (("x", pair.x, first.x), ("y", pair.y, first.y)):
        if structure(ours) != structure(theirs):
            raise DataError(
                f"{owner}: {name} is {_kind(ours)}, but {model} has {_kind(theirs)}: make them alike"
            )
        for (inner, own), (_, other) in zip(named(ours, name), named(theirs, name), strict=True):
            alike = own.dtype == other.dtype or (own.is_floating_point() and other.is_floating_point())
            if own.shape[1:] != other.shape[1:] or not alike:
                raise DataError(
                    f"{owner}: a row of {inner} is {own.dtype} of shape {tuple(own.shape[1:])}, "
                    f"but {model} has {other.dtype} of shape {tuple(other.shape[1:])}: make them alike"
                )


def _kind(tree: Tree) -> str:
    if isinstance(tree, dict):
        return f"a dict of {', '.join(map(str, tree))}"
    return f"a tuple of {len(tree)}" if isinstance(tree, tuple) else "one array"


CHECKED = 2**24  # numbers checked at once


def first_infinite(tensor: Tensor) -> int | None:
    """Return the first row that holds NaN or infinity, with little memory beside the data."""
    if not tensor.is_floating_point():
        return None
    seen = 0
    for block in torch.split(tensor, max(1, CHECKED * len(tensor) // max(1, tensor.numel()))):
        finite = torch.isfinite(block)
        if not bool(finite.all()):
            return seen + int((~finite.reshape(len(block), -1)).any(1).nonzero()[0])
        seen += len(block)
    return None
