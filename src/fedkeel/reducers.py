"""What stands between the clients' uploads and the server: a weighted mean, or a robust rule.

A reducer folds the uploads of a chunk of clients into a part and merges the parts. Chunks hold eight clients
by drawn position and are folded and merged in that order, so every engine gets the same sum to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from fedkeel.records import Record, stack, transform

CHUNK = 8


class Reducer(Protocol):
    """Folds weighted uploads and merges the parts into what the server aggregates."""

    def fold(self, uploads: Iterable[tuple[float, Record]]) -> Any:
        """Return one part of a chunk of (weight, upload)."""

    def merge(self, parts: Sequence[Any]) -> Record:
        """Return the reduced upload from the parts in order."""


class Part(NamedTuple):
    """A weighted sum of uploads and its weight."""

    total: Record
    weight: float


class Mean:
    """The weighted mean."""

    def __repr__(self) -> str:
        return "Mean()"

    def fold(self, uploads: Iterable[tuple[float, Record]]) -> Part:
        """Sum the weighted uploads of a chunk, one at a time; a single one of weight 1 is the sum itself."""
        total, sum_of_weights, own = None, 0.0, False
        for weight, upload in uploads:
            if total is None:
                own = weight != 1.0
                total = transform(lambda t, w=weight: t * w, upload) if own else upload
            elif own:
                transform(lambda t, u, w=weight: t.add_(u, alpha=w), total, upload)
            else:
                total, own = transform(lambda t, u, w=weight: t.add(u, alpha=w), total, upload), True
            sum_of_weights += weight
        return Part(total, sum_of_weights)

    def merge(self, parts: Sequence[Part]) -> Record:
        """Add the parts in order and divide by the weight."""
        first, *rest = parts
        total, weight = first
        for part in rest:
            total = transform(lambda t, u: t + u, total, part.total)
            weight += part.weight
        return transform(lambda t: t / weight, total)


class Median:
    """The coordinate-wise median: one wild upload cannot move it far. Weights are not used."""

    def __repr__(self) -> str:
        return "Median()"

    def fold(self, uploads: Iterable[tuple[float, Record]]) -> list[Record]:
        """Keep every upload of a chunk."""
        return [upload for _, upload in uploads]

    def merge(self, parts: Sequence[list[Record]]) -> Record:
        """Take the median over all uploads, the mean of the two middle ones where their number is even."""
        stacked = stack([upload for part in parts for upload in part])
        return transform(_median, stacked)


def _median(tensors: Tensor) -> Tensor:
    ordered, last = tensors.sort(dim=0).values, len(tensors) - 1
    return (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
