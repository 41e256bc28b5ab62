"""The papers' models on the papers' data: each learns on the real thing where it is at hand."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import fedkeel as fk


def needs(file: str) -> Any:
    place = Path(os.environ.get("FEDKEEL_DATA", "")) / file
    absent = "FEDKEEL_DATA" not in os.environ or not place.exists()
    return pytest.mark.skipif(
        absent, reason=f"{file} is not at hand: set FEDKEEL_DATA to a folder that has it"
    )


def learns(
    dataset: fk.Dataset, model: torch.nn.Module, splitter: Any, work: fk.Work, **options: Any
) -> float:
    """Train a short run of a few clients and return by how much their loss fell."""
    federation = dataset.split(splitter, **options)
    x, y = federation.test if federation.test is not None else federation.samples(0)
    few = fk.Federation(
        federation.pool,
        federation.index,
        federation.offsets,
        test=(x[:200], y[:200]),
        transform=federation.transform,
    )
    result = fk.train(
        fk.Task(model), few, fk.FedAvg(), rounds=2, cohort=2, work=work, execution=fk.Execution("serial")
    )
    assert math.isfinite(result.history[-1]["loss"])
    return result.history[0]["train_loss"] - result.history[1]["train_loss"]


@pytest.mark.slow
@needs("shakespeare.json")
def test_the_character_lstm_trains_on_shakespeare() -> None:
    dataset = fk.data.load("shakespeare", roles=4)
    work = fk.Work(steps=5, batch_size=50, lr=1.0)
    assert learns(dataset, fk.models.char_lstm(), fk.Natural(), work) > 0.1


@pytest.mark.slow
@needs("cifar10.npz")
def test_resnet_18_with_group_norm_trains_on_cifar_10() -> None:
    dataset = fk.data.load("cifar10")
    model = fk.models.build("resnet18_gn", shape=(3, 32, 32), classes=10, seed=0)
    work = fk.Work(steps=3, batch_size=20, lr=0.02)
    assert learns(dataset, model, fk.DirichletByClient(0.3), work, clients=500, seed=0) > 0.0


@pytest.mark.slow
@needs("cifar10.npz")
def test_the_cnn_of_fedsagd_trains_on_cifar_10() -> None:
    dataset = fk.data.load("cifar10")
    model = fk.models.build("cnn", shape=(3, 32, 32), classes=10, seed=0)
    work = fk.Work(steps=8, batch_size=50, lr=0.05)
    assert learns(dataset, model, fk.DirichletByClient(0.3), work, clients=100, seed=0) > 0.05


@needs("mnist.npz")
def test_logistic_regression_learns_mnist() -> None:
    federation = fk.data.load("mnist").split(fk.IID(), clients=100, seed=0)
    model = fk.models.build("logistic", shape=(1, 28, 28), classes=10, seed=0)
    work = fk.Work(epochs=1, batch_size=50, lr=0.1)
    result = fk.train(fk.Task(model), federation, fk.FedAvg(), rounds=5, cohort=10, work=work)
    assert result.history[-1]["accuracy"] > 0.85
