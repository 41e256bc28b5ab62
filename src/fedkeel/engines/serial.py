"""The serial engine: one client after another on flat buffers; the reference for all results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from fedkeel.core.oracle import Oracle
from fedkeel.data.samples import Samples
from fedkeel.engines.client import ClientRunner
from fedkeel.engines.contract import CohortResult, RoundRequest
from fedkeel.engines.reduction import Reduction
from fedkeel.engines.sizing import fits_channels_last, sensible_threads
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import ClientMemory
from fedkeel.tensors.vector import Vector


class Serial:
    """Runs the clients of a cohort one after another."""

    name = "serial"

    def __init__(self, settings: RunSettings, oracle: Oracle, threads: int | None = None) -> None:
        self.settings, self.oracle, self.runner = settings, oracle, ClientRunner(settings, oracle)
        oracle.channels_last = fits_channels_last(settings, oracle)
        self.threads = threads or sensible_threads(settings, oracle)

    def run(self, request: RoundRequest, memories: Sequence[ClientMemory]) -> CohortResult:
        """Let every client of the cohort do its round, and reduce what they send."""
        reduction = Reduction(self.settings.reducer, request.weights)
        with threads(self.threads):
            for client, memory in zip(request.clients, memories, strict=True):
                reduction.add(self.runner.outcome(request, client, memory))
            return reduction.result()

    def evaluate(self, vectors: Sequence[Vector], buffers: Vector, data: Samples) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples."""
        prepare = self.settings.federation.prepare
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
