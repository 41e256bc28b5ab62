"""The serial engine: one client after another on flat buffers; the reference for all results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import torch
from torch import Tensor, nn

from fedkeel.data.federation import Batch
from fedkeel.engines.contract import Harvest, Order, Setting
from fedkeel.engines.local import answer
from fedkeel.engines.pieces import chunks, fold
from fedkeel.oracle import Oracle
from fedkeel.records import Record
from fedkeel.reducers import Reducer
from fedkeel.vector import Vector

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


def first_batch(setting: Setting, limit: int) -> Batch:
    """Return some samples of the first client, ready for the model."""
    x, y = setting.federation.samples(0)
    return setting.federation.prepare(x[:limit]), y[:limit]


def sensible_threads(setting: Setting, oracle: Oracle) -> int:
    """Return how many threads a step deserves, from its operations; the same on every run."""
    return torch.get_num_threads() if step_flops(setting, oracle) > _FLOPS_WORTH_THREADS else 1


def step_flops(setting: Setting, oracle: Oracle) -> float:
    """Return about how many operations a client's step takes."""
    size = setting.work.batch_size or int(setting.federation.sizes[0])
    inputs, _ = oracle.place(first_batch(setting, limit=2))
    return forward_flops(oracle.still, inputs) / len(inputs) * size * 3  # forward, and twice that backward


def forward_flops(module: nn.Module, inputs: Tensor) -> float:
    """Count the operations of a pass in the layers' matrices: each is applied once a place of its output.

    Recurrent layers do not count: they are many small products one after another, which one thread does
    best. torch's own counter imports its compiler, which takes three seconds.
    """
    total = 0.0

    def count(layer: nn.Module, _: object, output: object) -> None:
        nonlocal total
        for weight in layer.parameters(recurse=False):
            if weight.ndim > 1 and isinstance(output, Tensor):
                width = output.shape[1 if weight.ndim > 2 else -1]
                total += 2 * weight.numel() * output.numel() / width

    layers = [layer for layer in module.modules() if not isinstance(layer, nn.RNNBase | nn.Embedding)]
    handles = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        module(inputs)
    for handle in handles:
        handle.remove()
    return total


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
