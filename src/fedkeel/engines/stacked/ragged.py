"""Minibatches of clients of unequal size, laid side by side.

Every client sees exactly the minibatches that the other engines give it. A shorter minibatch is filled up
with a sample of its own at weight zero; a client that has taken its steps is marked as finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedkeel.data.federation import Batch
from fedkeel.engines.client import client_stream, minibatches
from fedkeel.oracle import Oracle
from fedkeel.settings import RunSettings
from fedkeel.streams import Stream

_PLACES = 2**21  # places of samples laid out at once: 16 MB
_PREPARED = 2**27  # bytes of augmented samples laid out at once


class Form(NamedTuple):
    """The shape of a stacked minibatch: samples a client, and whether some may be filling."""

    width: int
    padded: bool

    @classmethod
    def of(cls, settings: RunSettings) -> Form:
        """Return the form that holds every minibatch any client of the federation can have."""
        sizes, limit = settings.federation.sizes, settings.work.batch_size
        if limit is None:
            return cls(int(sizes.max()), bool(sizes.min() != sizes.max()))
        last = torch.where(sizes < limit, sizes, sizes % limit)
        widest = min(limit, int(sizes.max()))
        return cls(widest, bool(((last != 0) & (last != widest)).any()))


class Feed(NamedTuple):
    """What one step takes from the data: (clients, width, …), and who still walks, (clients, 1)."""

    inputs: Tensor
    target: Tensor
    weights: Tensor | None
    alive: Tensor


class Window(NamedTuple):
    """Consecutive steps of a group: samples, and for every step which of them, with which weight, by whom."""

    pool: Batch
    places: Tensor
    weights: Tensor | None
    alive: Tensor

    def feeds(self) -> Iterator[Feed]:
        """Yield the steps. The inputs of all are gathered into the same memory: use each before the next."""
        inputs, target = self.pool
        steps, clients, width = self.places.shape
        rows = self.places.view(steps, -1)
        space = inputs.new_empty((clients * width, *inputs.shape[1:]))
        stacked = space.view(clients, width, *inputs.shape[1:])
        picked = target.index_select(0, self.places.flatten())
        targets = picked.view(*self.places.shape, *target.shape[1:]).unbind()
        weights = [None] * steps if self.weights is None else self.weights.unbind()
        for row, goal, weight, alive in zip(
            rows.unbind(), targets, weights, self.alive.unbind(), strict=True
        ):
            torch.index_select(inputs, 0, row, out=space)
            yield Feed(stacked, goal, weight, alive)


class Group(NamedTuple):
    """Clients that walk side by side on `slots` places; places beyond the clients stay empty."""

    settings: RunSettings
    oracle: Oracle
    round: int
    clients: Sequence[int]
    slots: int
    form: Form

    def windows(self, orders: Sequence[Sequence[np.ndarray]]) -> Iterator[Window]:
        """Yield the group's steps, so many at once as fit in little memory."""
        longest = max(len(order) for order in orders)
        span = self._span()
        if self.settings.federation.augment is None:
            for start in range(0, longest, span):
                yield self._stored([order[start : start + span] for order in orders])
            return
        streams = [
            self.settings.federation.batches(client, order, self._stream(client))
            for client, order in zip(self.clients, orders, strict=True)
        ]
        for _ in range(0, longest, span):
            yield self._augmented([list(islice(stream, span)) for stream in streams])

    def orders(self) -> list[list[np.ndarray]]:
        """Return every client's minibatches, as places among its own samples."""
        return [minibatches(self.settings, self.round, client) for client in self.clients]

    def laid_out(
        self, pool: Batch, held: Sequence[int], orders: Sequence[Sequence[np.ndarray]]
    ) -> Iterator[Window]:
        """Yield the group's steps on samples that lie ready, `held` of them a client."""
        longest, span = max(len(order) for order in orders), self._span()
        for start in range(0, longest, span):
            parts = [order[start : start + span] for order in orders]
            places = [np.concatenate(part) if part else np.zeros(0, dtype=np.int64) for part in parts]
            sizes = [np.array([len(batch) for batch in part], dtype=np.int64) for part in parts]
            yield self._window(pool, held, places, sizes)

    def _stream(self, client: int) -> Stream:
        return client_stream(self.settings.seed, self.round, client)

    def _span(self) -> int:
        samples = self.slots * self.form.width
        if self.settings.federation.augment is None:
            return max(1, _PLACES // samples)
        x = self.settings.federation.x
        return max(1, _PREPARED // (samples * x[0].numel() * self.oracle.point.element_size()))

    def _stored(self, orders: list[Sequence[np.ndarray]]) -> Window:
        """Prepare each sample once for all the steps that use it."""
        federation = self.settings.federation
        rows, places, sizes = [], [], []
        for client, order in zip(self.clients, orders, strict=True):
            own = federation.rows(client)
            used = np.concatenate(order) if order else np.zeros(0, dtype=np.int64)
            lengths = np.array([len(batch) for batch in order], dtype=np.int64)
            if 0 < len(used) < len(own):
                own, used = own[torch.from_numpy(used)], np.arange(len(used))
            rows.append(own if order else own[:1])
            places.append(used)
            sizes.append(lengths)
        x, y = federation.pick(torch.cat(rows))
        return self._window((federation.prepare(x), y), [len(part) for part in rows], places, sizes)

    def _augmented(self, batches: list[list[Batch]]) -> Window:
        filling = next(batch for own in batches for batch in own)
        owns = [own or [(filling[0][:1], filling[1][:1])] for own in batches]
        pool = torch.cat([x for own in owns for x, _ in own]), torch.cat([y for own in owns for _, y in own])
        held = [sum(len(y) for _, y in own) for own in owns]
        sizes = [np.array([len(y) for _, y in own], dtype=np.int64) for own in batches]
        return self._window(pool, held, [np.arange(int(s.sum())) for s in sizes], sizes)

    def _window(
        self, pool: Batch, held: Sequence[int], places: list[np.ndarray], sizes: list[np.ndarray]
    ) -> Window:
        """Lay the places out as (steps, slots, width): `held` samples a client, `sizes` its minibatches."""
        steps, width = max(len(own) for own in sizes), self.form.width
        layout = np.zeros((steps, self.slots, width), dtype=np.int64)
        lengths = np.zeros((steps, self.slots), dtype=np.int64)
        offsets = np.cumsum([0, *held])
        for slot, (own, size) in enumerate(zip(places, sizes, strict=True)):
            layout[:, slot] = offsets[slot]
            lengths[: len(size), slot] = size
            filled = np.arange(width) < size[:, None]
            layout[: len(size), slot][filled] = own + offsets[slot]
        inputs, target = self.oracle.to_device(pool)
        return Window(
            (inputs.contiguous(), target),
            torch.from_numpy(layout).to(inputs.device),
            self._weights(lengths) if self.form.padded else None,
            torch.from_numpy(lengths > 0).to(inputs.device)[..., None],
        )

    def _weights(self, lengths: np.ndarray) -> Tensor:
        shares = np.arange(self.form.width) < lengths[..., None]
        return torch.from_numpy(shares / np.maximum(lengths, 1)[..., None]).to(self.oracle.point)
