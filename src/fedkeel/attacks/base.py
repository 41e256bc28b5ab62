"""What an attack is: a share of the clients that is hostile, and what these do.

An attack is a frozen value. Who is hostile is drawn once per run, from the attack's own seed or else from the
run's. An attack on data changes the samples that hostile clients train on; an attack on uploads changes what
they send, after they did their round as every client does and remembered what the method says. All its
randomness is keyed, so a run under attack draws the same cohorts, minibatches and dropout as a clean one,
and is the same in every engine.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedkeel.common.errors import ConfigError
from fedkeel.data import Federation
from fedkeel.data.samples import Batch, InMemory, Samples
from fedkeel.reducers.norms import long_parts
from fedkeel.tensors.records import Record, leaves, rebuild
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.vector import Vector


class AttackView(NamedTuple):
    """What a hostile client knows: the round, its number, the broadcast model, the randomness of attacks."""

    round: int
    client: int
    x: Vector
    stream: Stream


class Attack(ABC):
    """Base of all attacks: a `share` of the clients is hostile; `seed` draws who, else the run's does."""

    share: float
    seed: int | None

    def stream(self, seed: int) -> Stream:
        """Return the randomness of the attack in a run with that seed."""
        return Stream(seed if self.seed is None else self.seed).branch("attack")

    def hostile(self, clients: int, seed: int) -> frozenset[int]:
        """Return who is hostile among so many clients in a run with that seed."""
        return _drawn(clients, round(self.share * clients), self.stream(seed))

    def check(self, federation: Federation, metrics: Collection[str]) -> None:
        """Raise ConfigError where the attack does not fit the data or what is measured."""
        clients = len(federation)
        if self.share > 0 and round(self.share * clients) == 0:
            raise ConfigError(
                f"attack = {self!r}: a share of {self.share:g} of {clients} clients is no client: give at "
                f"least {1 / clients:g}, or leave the attack out"
            )

    def send(self, upload: Record, view: AttackView) -> Record:
        """Return what a hostile client sends in place of its upload."""
        return upload

    def training_data(self, federation: Federation, seed: int) -> Federation:
        """Return the federation whose hostile clients train on other data."""
        return federation

    def success_samples(self, federation: Federation) -> Samples | None:
        """Return samples on which the model's accuracy is the attack's success, None where it has none."""
        return None


@lru_cache(maxsize=4)
def _drawn(clients: int, hostile: int, stream: Stream) -> frozenset[int]:
    """Draw so many of the clients."""
    chosen = stream.branch("hostile").numpy().choice(clients, size=hostile, replace=False)
    return frozenset(int(client) for client in chosen)


def changed_parts(upload: Record, change: Callable[[str, Tensor], Tensor]) -> Record:
    """Return an upload with its long parts changed; lengths and buffers stay what they are."""
    names = set(long_parts(upload))
    changed = {name: change(name, part) if name in names else part for name, part in leaves(upload)}
    return rebuild(upload, changed)


class AttackedSamples(NamedTuple):
    """Samples and, behind them, changed copies of some: row `of.size + k` is row `originals[k]`, changed.

    Nothing is copied before it is asked for. Only the `chosen` copies are changed.
    """

    of: Samples
    originals: Tensor
    chosen: Tensor
    change: Callable[[Batch], Batch]

    @property
    def size(self) -> int:
        """Return how many there are, with the copies."""
        return self.of.size + len(self.originals)

    def take(self, rows: Tensor) -> Batch:
        """Return inputs and targets of these rows."""
        size = self.of.size
        added = rows >= size
        copies = rows[added] - size
        sources = rows.clone()
        sources[added] = self.originals[copies]
        x, y = self.of.take(sources)
        changed = added.nonzero()[:, 0][self.chosen[copies]]
        if len(changed) == 0:
            return x, y
        new_x, new_y = self.change((x.index_select(0, changed), y.index_select(0, changed)))
        return x.index_copy(0, changed, new_x), y.index_copy(0, changed, new_y)

    def part(self, start: int, stop: int) -> Batch:
        """Return inputs and targets of consecutive rows."""
        return self.take(torch.arange(start, stop))

    def sample(self) -> InMemory:
        """Return what is looked at before training: none of the copies."""
        return self.of.sample()

    def identity(self) -> str:
        """Return what the fingerprint says of the samples; the attack has a name of its own."""
        return self.of.identity()
