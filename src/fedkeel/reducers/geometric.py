"""The geometric median (Pillutla et al. 2022), by Weiszfeld's iteration with Vardi and Zhang's repair."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedkeel.common.frozen import Count, Positive, frozen
from fedkeel.reducers.coordinates import median
from fedkeel.reducers.norms import NormReducer, Per, norms

_HERE = 1e-12  # of the median distance: an upload that is nearer is where the point is


@frozen
class GeometricMedian(NormReducer):
    """The point with the smallest weighted sum of distances to the uploads: argmin Σ w_i·‖z − u_i‖.

    z ← Σ a_i·u_i / Σ a_i with a_i = w_i / ‖z − u_i‖, from the median of each coordinate on, until z moves by
    less than `tolerance` of the median distance, and at most `iterations` times. Where z lies on an upload,
    it leaves it only if the others pull harder than that one's weight.
    """

    tolerance: Positive = 1e-6
    iterations: Count = 100
    per: Per = "record"

    def reduce_parts(self, parts: Sequence[Tensor], weights: Tensor) -> list[Tensor]:
        """Iterate in float64; an upload that is not finite does not count."""
        wide = [part.double() for part in parts]
        own = weights.to(wide[0].device)
        usable = torch.isfinite(norms(wide))
        if not bool(usable.all()):
            wide, own = [part[usable] for part in wide], own[usable]
        point = [median(part, own) for part in wide]
        for _ in range(self.iterations):
            away = [part - at for part, at in zip(wide, point, strict=True)]
            distances = norms(away)
            typical = float(median(distances[:, None], own))
            here = distances <= _HERE * typical
            pull = torch.where(here, 0.0, own / distances)
            if not bool(pull.any()):  # all agree
                break
            pulled = [(part * pull[:, None]).sum(0) for part in away]
            resisted = float(own[here].sum()) / max(float(norms([part[None] for part in pulled])), 1e-300)
            moves = [part * (max(0.0, 1 - resisted) / pull.sum()) for part in pulled]
            point = [at + move for at, move in zip(point, moves, strict=True)]
            if float(norms([move[None] for move in moves])) <= self.tolerance * typical:
                break
        return [at.to(part.dtype) for at, part in zip(point, parts, strict=True)]
