"""Minibatches of clients of unequal size, side by side.

Every client sees exactly the minibatches that the other engines give it. A shorter minibatch is padded with a
sample of the same client at weight zero; a client that has taken all its steps is marked as finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedkeel.data.federation import Batch
from fedkeel.engines.client import ClientRunner
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import RecordList
from fedkeel.tensors.trees import count, each, join, part, tensors

_MOST_INDICES = 2**21  # indices of samples in a window: 16 MB
_MOST_BYTES = 2**27  # bytes of augmented samples in a window


class BatchShape(NamedTuple):
    """The shape of a stacked minibatch: samples per client, and whether some may be padding."""

    width: int
    padded: bool

    @classmethod
    def of(cls, settings: RunSettings) -> BatchShape:
        """Return the shape that holds every minibatch any client of the federation can have."""
        work, clients = settings.work, set(settings.federation.sizes.tolist())
        sizes = {size for samples in clients for size in work.epoch(samples)}
        return cls(max(sizes), len(sizes) > 1)


class StepInputs(NamedTuple):
    """What one step takes from the data: (clients, width, …), and who still walks, (clients, 1).

    Inputs and targets are trees of tensors, of which a step gets the tensors, each under its number. `lr` are
    the clients' rates in this step, (clients, 1), None where all steps of the round have one rate.
    """

    inputs: RecordList
    target: RecordList
    weights: Tensor | None
    alive: Tensor
    lr: Tensor | None = None


class StepWindow(NamedTuple):
    """Consecutive steps of a group: samples, and for every step which of them, with which weight, by whom."""

    pool: Batch
    indices: Tensor
    weights: Tensor | None
    alive: Tensor

    def steps(self) -> Iterator[StepInputs]:
        """Yield the steps. The inputs of all are gathered into the same memory: use each before the next."""
        inputs, target = (tensors(tree) for tree in self.pool)
        steps, clients, width = self.indices.shape
        rows = self.indices.view(steps, -1)
        memory = [one.new_empty((clients * width, *one.shape[1:])) for one in inputs]
        stacked = RecordList(*(one.view(clients, width, *one.shape[1:]) for one in memory))
        picked = [one.index_select(0, self.indices.flatten()) for one in target]
        targets = [one.view(*self.indices.shape, *one.shape[1:]).unbind() for one in picked]
        weights = [None] * steps if self.weights is None else self.weights.unbind()
        for row, own_target, weight, alive in zip(
            rows.unbind(), zip(*targets, strict=True), weights, self.alive.unbind(), strict=True
        ):
            for one, into in zip(inputs, memory, strict=True):
                torch.index_select(one, 0, row, out=into)
            yield StepInputs(stacked, RecordList(*own_target), weight, alive)


class ClientGroup(NamedTuple):
    """Clients that walk side by side in `slots` slots; slots beyond the clients stay empty."""

    runner: ClientRunner
    round: int
    clients: Sequence[int]
    slots: int
    shape: BatchShape

    def orders(self) -> list[list[np.ndarray]]:
        """Return every client's minibatches, as indices into its own samples."""
        return [self.runner.minibatches(self.round, client) for client in self.clients]

    def windows(self, orders: Sequence[Sequence[np.ndarray]]) -> Iterator[StepWindow]:
        """Yield the group's steps, as many at once as fit in little memory."""
        longest = max(len(order) for order in orders)
        steps = self._steps_per_window()
        if self.runner.settings.federation.augment is None:
            for start in range(0, longest, steps):
                yield self._stored([order[start : start + steps] for order in orders])
            return
        streams = [
            self.runner.settings.training_data.batches(client, order, self.runner.stream(self.round, client))
            for client, order in zip(self.clients, orders, strict=True)
        ]
        for _ in range(0, longest, steps):
            yield self._augmented([list(islice(stream, steps)) for stream in streams])

    def windows_over(
        self, pool: Batch, counts: Sequence[int], orders: Sequence[Sequence[np.ndarray]]
    ) -> Iterator[StepWindow]:
        """Yield the group's steps on a given pool of samples, which holds `counts` of each client."""
        longest, steps = max(len(order) for order in orders), self._steps_per_window()
        for start in range(0, longest, steps):
            parts = [order[start : start + steps] for order in orders]
            indices = [np.concatenate(own) if own else np.zeros(0, dtype=np.int64) for own in parts]
            sizes = [np.array([len(batch) for batch in own], dtype=np.int64) for own in parts]
            yield self._window(pool, counts, indices, sizes)

    def _steps_per_window(self) -> int:
        samples = self.slots * self.shape.width
        if self.runner.settings.federation.augment is None:
            return max(1, _MOST_INDICES // samples)
        numbers = sum(one[0].numel() for one in tensors(self.runner.settings.federation.samples(0)[0]))
        return max(1, _MOST_BYTES // (samples * numbers * self.runner.oracle.point.element_size()))

    def _stored(self, orders: list[Sequence[np.ndarray]]) -> StepWindow:
        """Prepare each sample once for all the steps that use it."""
        federation = self.runner.settings.training_data
        rows, indices, sizes = [], [], []
        for client, order in zip(self.clients, orders, strict=True):
            own = federation.rows(client)
            used = np.concatenate(order) if order else np.zeros(0, dtype=np.int64)
            lengths = np.array([len(batch) for batch in order], dtype=np.int64)
            if 0 < len(used) < len(own):
                own, used = own[torch.from_numpy(used)], np.arange(len(used))
            rows.append(own if order else own[:1])
            indices.append(used)
            sizes.append(lengths)
        x, y = federation.pick(torch.cat(rows))
        return self._window((federation.prepare(x), y), [len(own) for own in rows], indices, sizes)

    def _augmented(self, batches: list[list[Batch]]) -> StepWindow:
        padding = next(batch for own in batches for batch in own)
        owns = [own or [(part(padding[0], 0, 1), part(padding[1], 0, 1))] for own in batches]
        pool = join([x for own in owns for x, _ in own]), join([y for own in owns for _, y in own])
        counts = [sum(count(y) for _, y in own) for own in owns]
        sizes = [np.array([count(y) for _, y in own], dtype=np.int64) for own in batches]
        return self._window(pool, counts, [np.arange(int(s.sum())) for s in sizes], sizes)

    def _window(
        self, pool: Batch, counts: Sequence[int], indices: list[np.ndarray], sizes: list[np.ndarray]
    ) -> StepWindow:
        """Arrange the clients' indices as (steps, slots, width).

        The pool holds `counts` samples of each client; `sizes` are those of each client's minibatches.
        """
        steps, width = max(len(own) for own in sizes), self.shape.width
        layout = np.zeros((steps, self.slots, width), dtype=np.int64)
        lengths = np.zeros((steps, self.slots), dtype=np.int64)
        offsets = np.cumsum([0, *counts])
        for slot, (own, size) in enumerate(zip(indices, sizes, strict=True)):
            layout[:, slot] = offsets[slot]
            lengths[: len(size), slot] = size
            filled = np.arange(width) < size[:, None]
            layout[: len(size), slot][filled] = own + offsets[slot]
        inputs, target = self.runner.oracle.to_device(pool)
        device = self.runner.oracle.device
        return StepWindow(
            (each(Tensor.contiguous, inputs), target),
            torch.from_numpy(layout).to(device),
            self._weights(lengths) if self.shape.padded else None,
            torch.from_numpy(lengths > 0).to(device)[..., None],
        )

    def _weights(self, lengths: np.ndarray) -> Tensor:
        real = np.arange(self.shape.width) < lengths[..., None]
        return torch.from_numpy(real / np.maximum(lengths, 1)[..., None]).to(self.runner.oracle.point)
