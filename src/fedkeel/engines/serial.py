"""The serial engine: one client after another on flat buffers; the reference for all results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import torch

from fedkeel.data.federation import Batch
from fedkeel.engines.client import answer
from fedkeel.engines.contract import Harvest, Order, Setting
from fedkeel.engines.pieces import chunks, fold
from fedkeel.engines.sizing import fits_channels_last, sensible_threads
from fedkeel.oracle import Oracle
from fedkeel.records import Record
from fedkeel.reducers import Reducer
from fedkeel.vector import Vector


class Serial:
    """Runs the clients of a cohort one after another."""

    name = "serial"

    def __init__(self, setting: Setting, oracle: Oracle, threads: int | None = None) -> None:
        self.setting, self.oracle = setting, oracle
        oracle.channels_last = fits_channels_last(setting, oracle)
        self.threads = threads or sensible_threads(setting, oracle)

    def run(self, order: Order, memories: Sequence[Record], reducer: Reducer) -> Harvest:
        """Let every client of the cohort do its round, and reduce what they send."""
        answers = (
            (weight, answer(self.setting, self.oracle, order, client, memory))
            for client, weight, memory in zip(order.clients, order.weights, memories, strict=True)
        )
        with threads(self.threads):
            parts = [fold(islice(answers, len(chunk)), reducer) for chunk in chunks(len(order.clients))]
            upload = reducer.merge([part for part, _ in parts])
        return Harvest.of(upload, [answer for _, kept in parts for answer in kept])

    def judge(self, vectors: Sequence[Vector], buffers: Vector, data: Batch) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples."""
        prepare = self.setting.federation.prepare
        with threads(self.threads):
            return [self.oracle.evaluate(vector, buffers, data, prepare) for vector in vectors]

    def close(self) -> None:
        """Nothing to give back."""


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute on that many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
