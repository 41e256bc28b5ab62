"""Runs that two engines make, and what they must share: for tests of engines that equal serial to the bit."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from variants import VARIANTS

import fedkeel as fk
from fedkeel.running.run_reading import TIMINGS
from fedkeel.running.session import Session
from fedkeel.tensors.records import leaves

WORK = fk.Work(epochs=1, batch_size=4, lr=0.05)
METHODS = [
    *fk.METHODS,
    *VARIANTS,
    lambda: fk.relaxed(fk.SCAFFOLD(), beta=0.1),
    lambda: fk.sharp(fk.FedDyn(), rho=0.05),
    lambda: fk.stages((fk.FedDyn(), 1), fk.FedAvg()),
]
REDUCERS = [
    fk.Median(),
    fk.TrimmedMean(0.15),
    fk.NormClip(),
    fk.NormClip(0.1, per="part"),
    fk.Krum(2),
    fk.MultiKrum(0.2, per="part"),
    fk.GeometricMedian(),
]
ATTACKS = [
    fk.SignFlip(0.3),
    fk.Scaling(0.3),
    fk.RandomNoise(0.3),
    fk.Collusion(0.3),
    fk.LabelFlip(0.3),
    fk.Backdoor(0.3, size=2),
]
ROBUST: list[dict[str, Any]] = [  # options of a run
    *({"reducer": reducer, "weighting": "samples"} for reducer in REDUCERS),
    *({"attack": attack} for attack in ATTACKS),
    {"reducer": fk.TrimmedMean(0.2), "attack": fk.LabelFlip(0.3), "sampling": "bernoulli", "cohort": 0.8},
]


def jitter(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + 0.01 * torch.randn(x.shape, generator=generator)


class Mortal:
    """Kills or stops the worker that varies a client's samples while a marker is left; changes nothing."""

    def __init__(self, directory: Path, deaths: int, number: int = signal.SIGKILL) -> None:
        self.directory, self.number = directory, number
        for death in range(deaths):
            (directory / f"death-{death}").touch()

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        for marker in self.directory.glob("death-*"):
            marker.unlink(missing_ok=True)
            os.kill(os.getpid(), self.number)
            break
        return x


def clients(count: int = 24, classes: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    sizes = [4 + 2 * (i % 5) for i in range(count)]
    return [
        (torch.randn(n, 6, generator=generator), torch.randint(classes, (n,), generator=generator))
        for n in sizes
    ]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.1), nn.Linear(5, 3))


def assert_equal(one: Session, other: Session) -> None:
    """All that two sessions hold is the same to the bit."""
    for a, b in (
        (one.state.server, other.state.server),
        *((one.store[i], other.store[i]) for i in one.store),
    ):
        for (name, left), (_, right) in zip(leaves(a), leaves(b), strict=True):
            assert torch.equal(left, right), name
    assert torch.equal(one.state.buffers, other.state.buffers)
    assert set(one.store) == set(other.store)
    timeless = [
        [{k: v for k, v in row.items() if k not in TIMINGS} for row in s.history] for s in (one, other)
    ]
    assert timeless[0] == timeless[1]
