"""The workloads: who has which data, and how much of it is walked in a round. Needs torch alone."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

SOURCE = Path(__file__).parents[2] / "src"
Data = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Workload:
    """A model and equal clients; in a round `cohort` of them walk `epochs` times over their data."""

    name: str
    model: str
    shape: tuple[int, ...]
    classes: int
    clients: int
    samples: int
    cohort: int
    batch: int
    epochs: int = 1
    warm: int = 3
    lr: float = 0.01

    @property
    def steps(self) -> int:
        """Return the gradient steps of one client in a round."""
        return self.epochs * math.ceil(self.samples / self.batch)

    @property
    def text(self) -> bool:
        """Tell whether samples are characters."""
        return self.model == "char_lstm"

    def with_(self, **changes: Any) -> Workload:
        """Return the same workload with something changed."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the workload as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Workload:
        """Return what `to_json` was given."""
        return cls(**{**values, "shape": tuple(values["shape"])})


_LOGISTIC = Workload("logistic", "logistic", (784,), 10, 500, 96, 5, 48, epochs=20)
WORKLOADS = {
    workload.name: workload
    for workload in (
        _LOGISTIC,
        _LOGISTIC.with_(name="logistic50", cohort=50),
        Workload("cnn", "cnn", (3, 32, 32), 10, 100, 500, 10, 50, warm=1),
        Workload("lstm", "char_lstm", (80,), 80, 100, 200, 3, 100),
        Workload("resnet", "resnet18_gn", (3, 32, 32), 10, 20, 50, 2, 50, warm=2),
    )
}


# What `--quick` measures: the two that the others resemble, the second with fewer clients per round.
QUICK = {"logistic": WORKLOADS["logistic"], "cnn": WORKLOADS["cnn"].with_(cohort=2)}


def make_data(workload: Workload, seed: int = 0) -> Data:
    """Draw all clients' samples, client after client: noise and random classes."""
    generator = torch.Generator().manual_seed(seed)
    count = workload.clients * workload.samples
    y = torch.randint(workload.classes, (count,), generator=generator)
    if workload.text:
        return torch.randint(workload.classes, (count, *workload.shape), generator=generator), y
    return torch.randn(count, *workload.shape, generator=generator), y


def load_data(path: str | None, workload: Workload) -> Data:
    """Map the data that was written to a file (all contenders share the pages), or draw it."""
    if path is None:
        return make_data(workload)
    x, y = torch.load(path, mmap=True)
    x.sum()  # touches every page, so that no round pays for it
    return x, y


def build_model(workload: Workload) -> nn.Module:
    """Return fedkeel's model of the workload."""
    from fedkeel.models import build  # noqa: PLC0415  which fedkeel this is, the caller decides

    return build(workload.model, shape=workload.shape, classes=workload.classes)


def without_fedkeel() -> None:
    """Let `fedkeel.models` be imported where fedkeel and what it depends on are not installed."""
    package = ModuleType("fedkeel")
    package.__path__ = [str(SOURCE / "fedkeel")]
    sys.modules["fedkeel"] = package
