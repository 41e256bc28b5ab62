"""What rules on norms and distances share: which parts of an upload they look at, and what of the rest.

A norm is of the parts that are as long as the model: moves, control variates, gradients, momenta. With
`per="record"` it is one norm of all of them together, with `per="part"` each part is reduced on its own. The
numbers beside them (the lengths of walks) and the model's buffers (statistics of BatchNorm) are no moves and
belong to no norm: they are reduced by their median, so that no client's number passes unchecked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fedkeel.reducers.base import StackReducer
from fedkeel.reducers.coordinates import median
from fedkeel.tensors.records import Record, leaves, rebuild

Per: TypeAlias = Literal["record", "part"]

_BUFFERS = "buffers"  # the field of an upload that holds the model's buffers


class NormReducer(StackReducer):
    """A rule on norms or distances: write `reduce_parts`."""

    per: Per

    @abstractmethod
    def reduce_parts(self, parts: Sequence[Tensor], weights: Tensor) -> list[Tensor]:
        """Return one of each part, (d,), from the clients' parts, (clients, d), which have one norm."""

    def reduce(self, uploads: Record, weights: Tensor) -> Record:
        """Reduce the long parts together or one by one, and everything else by its median."""
        names = long_parts(uploads)
        found = dict(leaves(uploads))
        groups = [names] if self.per == "record" else [[name] for name in names]
        reduced = {name: median(part, weights) for name, part in found.items() if name not in names}
        for group in groups:
            made = self.reduce_parts([found[name] for name in group], weights)
            reduced.update(zip(group, made, strict=True))
        return rebuild(uploads, reduced)


def long_parts(upload: Record) -> list[str]:
    """Return the names of the parts that are as long as the model, of one upload or of stacked ones."""
    sizes = {name: part.shape[-1] for name, part in leaves(upload) if name.partition(".")[0] != _BUFFERS}
    longest = max(sizes.values(), default=0)
    return [name for name, size in sizes.items() if size == longest]


def norms(parts: Sequence[Tensor]) -> Tensor:
    """Return the norm of each client's parts together, (clients,); infinite where one is not a number."""
    each = [torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in parts]
    found = torch.linalg.vector_norm(torch.stack(each), dim=0)
    return torch.where(torch.isfinite(found), found, torch.inf)


def weighted_mean(parts: Sequence[Tensor], weights: Tensor) -> list[Tensor]:
    """Return the weighted mean of each part; a client of weight zero may hold anything."""
    share = (weights / weights.sum()).to(parts[0].device)[:, None]
    return [(torch.where(share > 0, part.double(), 0.0) * share).sum(0).to(part.dtype) for part in parts]
