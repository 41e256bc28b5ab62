"""The oracle steps along a gradient, however autograd lays it out in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems import settings_of
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines.client import ClientRunner


class Odd(nn.Module):
    """Has a sparse gradient, a parameter without one, a number and an empty parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4, sparse=True)
        self.head = nn.Linear(4, 3)
        self.unused = nn.Parameter(torch.ones(2, 2))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.zeros(0, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x).mean(1)) * self.scale


class Shared(nn.Module):
    """Two parameters whose gradients are one tensor, and one whose gradient is a single number, repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Parameter(torch.ones(5, 3)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.first + self.second) + self.third.sum()


def pictures() -> tuple[Tensor, Tensor]:
    return torch.randn(5, 3, 8, 8), torch.randint(0, 3, (5,))


def tokens() -> tuple[Tensor, Tensor]:
    return torch.randint(0, 7, (5, 6)), torch.randint(0, 3, (5,))


def numbers() -> tuple[Tensor, Tensor]:
    return torch.randn(5, 3), torch.randint(0, 3, (5,))


def convolutions() -> nn.Module:
    body = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(96, 3))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "convolutions": (convolutions, pictures),
    "odd parameters": (Odd, tokens),
    "shared gradients": (Shared, numbers),
}


@pytest.mark.parametrize("flat", [False, True], ids=["by layers", "flat"])
@pytest.mark.parametrize("biased", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("shrink", [0.0, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_a_step_is_minus_the_rate_times_gradient_bias_and_decay(
    case: str, shrink: float, biased: bool, flat: bool
) -> None:
    make, draw = CASES[case]
    torch.manual_seed(0)
    oracle, batch = Oracle(fk.Task(make().double()), torch.device("cpu")), draw()
    oracle.channels_last = True  # gradients of convolutions then lie in memory otherwise than their weights
    bias = torch.randn_like(oracle.point) if biased else None
    for _ in range(2):
        oracle.gradient(batch)
        before, gradient = oracle.point.clone(), oracle.grad.clone()
        if not flat:
            oracle.gradient(batch)
        oracle.descend(0.1, shrink, bias)
        expected = before - 0.1 * (gradient + shrink * before + (0.0 if bias is None else bias))
        torch.testing.assert_close(oracle.point, expected, rtol=0, atol=1e-14)
        torch.testing.assert_close(oracle.grad, gradient, rtol=0, atol=0)


def test_the_full_gradient_of_a_loss_that_is_no_mean_over_samples_is_that_of_all_of_them() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2500, 4, generator=generator).double()
    y = torch.arange(2500) // 1250  # the batches hold other shares of the classes
    for weight in (None, torch.tensor([1.0, 9.0]).double()):
        torch.manual_seed(0)
        task = fk.Task(nn.Linear(4, 2).double(), nn.CrossEntropyLoss(weight=weight))
        data = fk.Federation.from_arrays([(x, y)])
        settings = settings_of(task, data, fk.FedAvg(), rounds=1, cohort=1, work=fk.Work(steps=1))
        oracle = Oracle(task, torch.device("cpu"))
        found = ClientRunner(settings, oracle).full_gradient(0, oracle.point.clone())
        expected = torch.autograd.grad(task.loss(task.module(x), y), list(task.module.parameters()))
        assert torch.allclose(found, torch.cat([part.flatten() for part in expected]), atol=1e-12)
