"""The serial engine: one client after another on flat buffers; the reference for all results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedkeel.data.federation import Batch
from fedkeel.engines.contract import Answer, Harvest, Order, Setting
from fedkeel.engines.local import answer
from fedkeel.oracle import Oracle
from fedkeel.records import Record
from fedkeel.reducers import CHUNK, Reducer

_FLOPS_WORTH_THREADS = 2e7  # a step below this is faster on one thread, a busy machine makes it ten times so


class Serial:
    """Runs the clients of a cohort one after another."""

    name = "serial"

    def __init__(self, setting: Setting, oracle: Oracle, threads: int | None = None) -> None:
        self.setting, self.oracle = setting, oracle
        oracle.channels_last = fits_channels_last(setting, oracle)
        self.threads = threads or sensible_threads(setting, oracle)

    def run(self, order: Order, memories: Sequence[Record], reducer: Reducer) -> Harvest:
        """Let every client of the cohort do its round, and reduce what they send."""
        kept: list[Answer] = []  # without the uploads: one at a time is alive

        def uploads(chunk: range) -> Iterator[tuple[float, Record]]:
            for place in chunk:
                given = answer(self.setting, self.oracle, order, order.clients[place], memories[place])
                kept.append(given.without_upload())
                yield order.weights[place], given.upload

        with threads(self.threads):
            count = len(order.clients)
            chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
            upload = reducer.merge([reducer.fold(uploads(chunk)) for chunk in chunks])
        return Harvest.of(upload, kept)

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


def first_batch(setting: Setting, limit: int) -> Batch:
    """Return some samples of the first client, ready for the model."""
    x, y = setting.federation.samples(0)
    return setting.federation.prepare(x[:limit]), y[:limit]


def sensible_threads(setting: Setting, oracle: Oracle) -> int:
    """Return how many threads a step deserves, from its operations; the same on every run."""
    size = setting.work.batch_size or int(setting.federation.sizes[0])
    inputs, _ = oracle.place(first_batch(setting, limit=2))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        oracle.still(inputs)
    flops = counter.get_total_flops() / len(inputs) * size * 3  # forward, and twice that backward
    return torch.get_num_threads() if flops > _FLOPS_WORTH_THREADS else 1


def fits_channels_last(setting: Setting, oracle: Oracle) -> bool:
    """Tell whether the model has convolutions and takes batches in the faster memory format."""
    if not any(isinstance(layer, nn.Conv2d) for layer in oracle.module.modules()):
        return False
    inputs, _ = oracle.place(first_batch(setting, limit=2))
    if inputs.ndim != 4:
        return False
    try:
        with torch.no_grad():
            oracle.still(inputs.contiguous(memory_format=torch.channels_last))
    except RuntimeError:  # the model reshapes with view(), which needs the plain format
        return False
    return True
