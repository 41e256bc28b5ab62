"""The bare loop: the same gradient steps in plain PyTorch, at its best thread count and memory format."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchlib.turns import Enough, Turns, job
from benchlib.workloads import Data, Workload, build_model, load_data, without_fedkeel

_TRIALS, _STEPS, _PATIENCE = 5, 4, 20.0


class Variant(NamedTuple):
    """A way to write the bare loop."""

    threads: int
    form: str  # "plain" or "channels_last"


class Bare:
    """A model and a loop over minibatches."""

    def __init__(self, workload: Workload, data: Data, variant: Variant) -> None:
        self.workload, self.data, self.variant = workload, data, variant
        self.model = build_model(workload)
        if variant.form == "channels_last":
            self.model.to(memory_format=torch.channels_last)
        self.parameters = list(self.model.parameters())
        self.gradients = 0

    def round(self) -> None:
        """Take the steps of a round's clients."""
        torch.set_num_threads(self.variant.threads)
        for client in torch.randperm(self.workload.clients)[: self.workload.cohort].tolist():
            for batch in self.batches(client):
                self.step(*batch)

    def batches(self, client: int) -> Iterator[Data]:
        """Yield a client's shuffled minibatches."""
        size = self.workload.samples
        own = slice(client * size, (client + 1) * size)
        x, y = self.data[0][own], self.data[1][own]
        for _ in range(self.workload.epochs):
            order = torch.randperm(size)  # gathered once per epoch: leaner than once per batch
            yield from zip(*(part[order].split(self.workload.batch) for part in (x, y)), strict=True)

    def step(self, x: Tensor, y: Tensor) -> None:
        """Take one step of SGD."""
        if self.variant.form == "channels_last":
            x = x.contiguous(memory_format=torch.channels_last)
        loss = cross_entropy(self.model(x), y)
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            torch._foreach_add_(self.parameters, gradients, alpha=-self.workload.lr)
        self.gradients += 1


def variants(workload: Workload) -> list[Variant]:
    """Return the ways worth trying."""
    forms = ["plain", *(["channels_last"] if len(workload.shape) == 3 else [])]
    return [Variant(*pair) for pair in product((1, 2), forms)]


def fastest(workload: Workload, data: Data) -> Bare:
    """Return the fastest variant, by some steps of each in turn."""
    loops = [Bare(workload, data, variant) for variant in variants(workload)]
    seconds = {loop.variant: float("inf") for loop in loops}
    started = time.perf_counter()
    for trial in range(_TRIALS + 1):
        if trial > 1 and time.perf_counter() - started > _PATIENCE:
            break
        for loop in loops:
            took = _some_steps(loop)
            if trial:
                seconds[loop.variant] = min(seconds[loop.variant], took)
    return min(loops, key=lambda loop: seconds[loop.variant])


def _some_steps(loop: Bare) -> float:
    torch.set_num_threads(loop.variant.threads)
    started = time.perf_counter()
    for _, batch in zip(range(_STEPS), loop.batches(0), strict=False):
        loop.step(*batch)
    return time.perf_counter() - started


def main() -> None:
    """Take turns."""
    without_fedkeel()
    given = job()
    workload = Workload.from_json(given["workload"])
    data, variant = load_data(given["data"], workload), given["options"]
    loop = Bare(workload, data, Variant(**variant)) if variant else fastest(workload, data)
    turns = Turns(workload.warm, torch=torch.__version__, **loop.variant._asdict())
    with suppress(Enough):
        while True:
            loop.round()
            turns.round_done()


if __name__ == "__main__":
    main()
