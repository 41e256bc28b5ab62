"""A small federation and one round of training on it, for tests of tasks and targets."""

from __future__ import annotations

from typing import Any

import flat
import numpy as np
import torch
from torch import nn

import fedkeel as fk

WORK = fk.Work(steps=1, batch_size=4, lr=0.01)


def federation(y: Any, x: Any = None, clients: int = 2, **options: Any) -> fk.Federation:
    """Return clients that all have the same targets."""
    y = torch.as_tensor(y)
    x = np.random.default_rng(1).normal(size=(len(y), 4)) if x is None else x
    return fk.Federation.from_arrays([(x, y)] * clients, **options)


def train(
    task: fk.Task, data: fk.Federation, algorithm: fk.Algorithm | None = None, **options: Any
) -> dict[str, Any]:
    """Return the row of one round, evaluated on the test set, or else on all clients' data."""
    evaluated = {} if data.test is not None else {"evaluate_on": "clients"}
    given = {"rounds": 1, "cohort": 2, "work": WORK, "engine": "serial", **evaluated, **options}
    return flat.train(task, data, algorithm or fk.FedAvg(), **given).history[-1]


def linear(outputs: int, *more: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, outputs), *more).double()
