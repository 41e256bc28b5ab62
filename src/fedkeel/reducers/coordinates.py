"""Rules that look at each coordinate on its own (Yin et al. 2018): the median and the trimmed mean.

They reduce every number of an upload, whatever it means: moves, control variates, lengths, buffers. A client
of weight w counts like w clients of weight 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedkeel.common.frozen import BelowHalf, frozen
from fedkeel.reducers.base import StackReducer
from fedkeel.tensors.records import Record, transform

_ROUNDING = 1e-9  # of the whole weight: what is left of a client that is trimmed but for rounding


@frozen
class Median(StackReducer):
    """The median of each coordinate: it stays where it is while less than half of the weight is hostile."""

    def reduce(self, uploads: Record, weights: Tensor) -> Record:
        """Take the median, the mean of the two middle values where it lies between them."""
        return transform(lambda values: median(values, weights), uploads)


@frozen
class TrimmedMean(StackReducer):
    """The mean of each coordinate without the `share` of the weight that is lowest, and that is highest.

    A client at the edge of what is trimmed counts with the part of its weight that is left.
    """

    share: BelowHalf = 0.2

    def reduce(self, uploads: Record, weights: Tensor) -> Record:
        """Sort each coordinate, cut both ends off, and average the rest."""
        return transform(lambda values: _trimmed(values, weights, self.share), uploads)


def median(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted median over the first axis."""
    ordered, order = values.sort(dim=0)
    last = len(values) - 1
    if bool((weights == weights[0]).all()):
        return (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    until = weights.to(values.device)[order].cumsum(0)
    half = until[-1:] / 2
    tiny = _ROUNDING * until[-1:]
    low = (until < half - tiny).sum(0, keepdim=True)
    high = (until <= half + tiny).sum(0, keepdim=True).clamp_max(last)
    return ((ordered.gather(0, low) + ordered.gather(0, high)) / 2)[0]


def _trimmed(values: Tensor, weights: Tensor, share: float) -> Tensor:
    """Return the mean of what lies between the two ends, by weight."""
    ordered, order = values.sort(dim=0)
    own = weights.to(values.device)[order]
    until = own.cumsum(0)
    total = until[-1:]
    left = torch.minimum(until, (1 - share) * total) - torch.maximum(until - own, share * total)
    left = torch.where(left > _ROUNDING * total, left, 0.0)
    kept = torch.where(left > 0, ordered.double(), 0.0)  # what is cut off may be infinite
    return ((kept * left).sum(0) / left.sum(0)).to(values.dtype)
