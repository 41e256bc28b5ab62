"""Rows of the pool that belong to clients besides their training data: for validation, or to test on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.tensors.streams import Stream


class ClientRows(NamedTuple):
    """Rows of a federation's pool by client: those of client i are `rows[offsets[i]:offsets[i + 1]]`."""

    rows: Tensor
    offsets: Tensor

    def of(self, client: int) -> Tensor:
        """Return the rows of a client, which may be none."""
        return self.rows[int(self.offsets[client]) : int(self.offsets[client + 1])]

    def first(self, clients: int) -> Tensor:
        """Return the rows of the first clients."""
        return self.rows[: int(self.offsets[clients])]


def hold_out_rows(
    own: ClientRows, clients: int, share: float, stream: Stream, name: str
) -> tuple[ClientRows, ClientRows]:
    """Take a share of the rows of the first clients away from them; return what stays and what is taken.

    Of n rows share·n are taken, rounded up or down at random so that the share holds on average over clients
    of a few samples too; one at least stays.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise DataError(f"{name} = {share!r}: give a share of each client's samples between 0 and 1, as 0.1")
    generator = stream.numpy()
    sizes = own.offsets.diff()
    wanted = share * sizes.double() + torch.from_numpy(generator.random(len(sizes)))
    counts = torch.minimum(wanted.long(), sizes - 1)
    counts[clients:] = 0
    owners = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    order = torch.from_numpy(np.lexsort((generator.random(len(owners)), owners.numpy())))
    ranks = torch.empty_like(owners)  # of each row, in a random order of its client's
    ranks[order] = torch.arange(len(owners)) - own.offsets[:-1][owners]
    taken = ranks < counts[owners]
    if not bool(taken.any()):
        raise DataError(
            f"{name} = {share:g}: the clients are too small, no sample is held out: give a larger share"
        )
    return _those(own, ~taken, sizes - counts), _those(own, taken, counts)


def _those(own: ClientRows, chosen: Tensor, counts: Tensor) -> ClientRows:
    return ClientRows(own.rows[chosen], torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]))
