"""Measures the seconds of 1,000 sample gradients on one core for every model that recipes train.

    python benchmarks/recipe_speeds.py             # prints the numbers for MODELS of reproduce/estimate.py

The estimates of `fedkeel recipes` and `--dry-run` rest on them. Batches of 50, as most of the papers have.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch.nn.functional import cross_entropy

from fedkeel import models
from fedkeel.papers.reproduce.estimate import MODELS

SHAPES = {"logistic": (1, 28, 28), "mlp": (3, 32, 32), "char_lstm": (80,)}
CLASSES = {"char_lstm": 80}
BATCH = 50


def seconds(name: str, repetitions: int = 5) -> tuple[float, int]:
    """Return the median seconds for 1,000 sample gradients, and the number of parameters."""
    shape, classes = SHAPES.get(name, (3, 32, 32)), CLASSES.get(name, 10)
    model = models.build(name, shape=shape, classes=classes, seed=0, dtype=torch.float32)
    whole = name == "char_lstm"
    x = torch.randint(80, (BATCH, *shape)) if whole else torch.randn(BATCH, *shape)
    y = torch.randint(classes, (BATCH,))
    times = []
    for _ in range(repetitions + 1):
        started = time.perf_counter()
        cross_entropy(model(x), y).backward()
        times.append(time.perf_counter() - started)
    parameters = sum(part.numel() for part in model.parameters())
    return 1000 / BATCH * statistics.median(times[1:]), parameters


if __name__ == "__main__":
    torch.set_num_threads(1)
    for model_name, before in MODELS.items():
        now, parameters = seconds(model_name)
        print(f'"{model_name}": ModelSize({now:.3g}, {parameters:_}),  # was {before.seconds:g}', flush=True)
