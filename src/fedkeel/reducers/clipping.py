"""Norm clipping (Sun et al. 2019): no upload may be longer than a bound."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedkeel.common.frozen import Positive, frozen
from fedkeel.reducers.coordinates import median
from fedkeel.reducers.norms import NormReducer, Per, norms


@frozen
class NormClip(NormReducer):
    """The weighted mean of uploads that are shortened to a norm; by default to the median of their norms.

    It bounds what a hostile client can do in a round, and does not undo it.
    """

    norm: Positive | None = None
    per: Per = "record"

    def reduce_parts(self, parts: Sequence[Tensor], weights: Tensor) -> list[Tensor]:
        """Shorten what is too long, and average; an upload that is not finite counts as zero."""
        found = norms(parts)
        bound = median(found[:, None], weights) if self.norm is None else self.norm
        factor = torch.clamp(bound / found, max=1.0)
        factor = torch.where(found > 0, factor, 1.0)[:, None]
        share = (weights / weights.sum()).to(found)[:, None]
        clipped = (torch.where(factor > 0, part.double(), 0.0) * factor for part in parts)
        return [(part * share).sum(0).to(like.dtype) for part, like in zip(clipped, parts, strict=True)]
