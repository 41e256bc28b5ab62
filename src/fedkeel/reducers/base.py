"""What stands between the clients' uploads and the server: a weighted mean, or a robust rule.

A reducer adds the uploads of a chunk one by one to a part and merges the parts. Chunks hold eight clients by
drawn position and are added and merged in that order, so every engine gets the same sum to the bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fedkeel.common.frozen import frozen
from fedkeel.tensors.records import Record, stack, transform

CHUNK = 8


class Reducer(Protocol):
    """Adds weighted uploads to parts and merges the parts into what the server aggregates."""

    def add(self, part: Any, weight: float, upload: Record) -> Any:
        """Return the part with one more upload; the part is None at first."""

    def merge(self, parts: Sequence[Any]) -> Record:
        """Return the reduced upload from the parts in order."""


class WeightedSum(NamedTuple):
    """Uploads times their weights, added up; `owned` where the sum lies in memory of its own."""

    total: Record
    weight: float
    owned: bool


@frozen
class Mean:
    """The weighted mean."""

    def add(self, part: WeightedSum | None, weight: float, upload: Record) -> WeightedSum:
        """Add an upload times its weight; a single one of weight 1 is the sum itself."""
        if part is None:
            if weight == 1.0:
                return WeightedSum(upload, weight, owned=False)
            return WeightedSum(transform(lambda t: t * weight, upload), weight, owned=True)
        if part.owned:
            total = transform(lambda t, u: t.add_(u, alpha=weight), part.total, upload)
        else:
            total = transform(lambda t, u: t.add(u, alpha=weight), part.total, upload)
        return WeightedSum(total, part.weight + weight, owned=True)

    def merge(self, parts: Sequence[WeightedSum]) -> Record:
        """Add the parts in order and divide by the weight."""
        first, *rest = parts
        total, weight = first.total, first.weight
        for part in rest:
            total = transform(lambda t, u: t + u, total, part.total)
            weight += part.weight
        return transform(lambda t: t / weight, total)


class StackReducer(ABC):
    """A reducer that sees all uploads at once: write `reduce`, and `check` where it needs some clients."""

    def check(self, clients: int) -> None:  # noqa: B027  most rules work with any number
        """Raise ConfigError where a cohort of that size is too small for this rule."""

    @abstractmethod
    def reduce(self, uploads: Record, weights: Tensor) -> Record:
        """Return one upload from the stacked ones, (clients, …) each, and the weights, (clients,)."""

    def add(
        self, part: list[tuple[float, Record]] | None, weight: float, upload: Record
    ) -> list[tuple[float, Record]]:
        """Keep every upload with its weight."""
        return [*(part or []), (weight, upload)]

    def merge(self, parts: Sequence[list[tuple[float, Record]]]) -> Record:
        """Stack all uploads in drawn order and reduce them."""
        weights, uploads = zip(*(entry for part in parts for entry in part), strict=True)
        return self.reduce(stack(uploads), torch.tensor(weights, dtype=torch.float64))
