"""The federation as each side of a deployment sees it: a node has its own data, the server has none."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.common.identity import stable_name
from fedkeel.data.federation import Federation
from fedkeel.data.samples import Batch, InMemory, Samples


class NodeFederation(Federation):
    """A federation of which only one client's data is here: every number stands for that client."""

    population: int

    @classmethod
    def of(cls, own: Federation, population: int) -> NodeFederation:
        """Take the only client of a federation as one of `population`."""
        if len(own) != 1:
            raise DataError(
                f"data(node) returned a federation of {len(own)} clients: a node has one client's data"
            )
        made = cls(**{name: getattr(own, name) for name in Federation.__dataclass_fields__})
        object.__setattr__(made, "population", population)
        return made

    def __len__(self) -> int:
        """Return the number of clients that can be drawn, here or on other nodes."""
        return getattr(self, "population", 1)

    @property
    def sizes(self) -> Tensor:
        """Return this client's number of samples for every client."""
        return self.offsets.diff()[:1].expand(len(self))

    @property
    def mean_size(self) -> float:
        """Return this client's number of samples: the server tells the mean with every round."""
        return float(len(self.index))

    def size(self, client: int) -> int:
        """Return this client's number of samples."""
        return len(self.index)

    def rows(self, client: int) -> Tensor:
        """Return the indices of this client's samples."""
        return self.index


class Elsewhere:
    """Samples that stay where they are."""

    def __init__(self, size: int) -> None:
        self.size = size

    def take(self, rows: Tensor) -> Batch:
        """Refuse."""
        raise DataError(
            "the clients' samples stay on their nodes: what needs them at the server (evaluate_on='clients', "
            "the probes losses, excess_risk and client_accuracy) works in simulations only"
        )

    def part(self, start: int, stop: int) -> Batch:
        """Refuse."""
        return self.take(torch.arange(start, stop))

    def sample(self) -> InMemory:
        """Return nothing to look at."""
        return InMemory(torch.empty(0), torch.empty(0))

    def identity(self) -> str:
        """Return what is known of them."""
        return f"{self.size} samples on nodes"


class ServerFederation(Federation):
    """A federation whose clients' data lies on their nodes; the server knows how much, and has a test set."""

    @classmethod
    def of(cls, sizes: Sequence[int], test: Samples | None, **options: Any) -> ServerFederation:
        """Describe clients by the numbers of their samples."""
        counts = torch.as_tensor(sizes, dtype=torch.int64)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        pool: Any = Elsewhere(int(offsets[-1]))
        return cls(pool, torch.empty(0, dtype=torch.int64), offsets, test, **options)

    def rows(self, client: int) -> Tensor:
        """Refuse."""
        found: Tensor = self.pool.take(torch.empty(0))[0]  # it raises
        return found

    @property
    def everything(self) -> Samples:
        """Return the samples that are elsewhere."""
        return self.pool

    def fingerprint(self) -> str:
        """Return a hash of the clients' numbers of samples and of the test set."""
        digest = hashlib.sha256(stable_name((self.offsets.tolist(), self.transform, self.augment)).encode())
        if self.test is not None:
            digest.update(Federation(self.test, torch.arange(1), torch.tensor([0, 1])).fingerprint().encode())
        return digest.hexdigest()
