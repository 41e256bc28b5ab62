"""The size of a step decides its memory format and its threads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines.sizing import activation_count, fits_channels_last, forward_flops
from fedkeel.settings.run_settings import RunSettings


class Viewed(nn.Module):
    """Reshapes with `view`, which the channels-last format breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4 * 30 * 30, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convolution(x)
        return self.head(x.view(len(x), -1))


def fits(model: nn.Module, batch: int, shape: tuple[int, ...] = (3, 32, 32)) -> bool:
    data = fk.Federation.from_arrays([(torch.zeros(4, *shape), torch.zeros(4, dtype=torch.int64))])
    work = fk.Work(steps=1, batch_size=batch)
    settings = RunSettings(
        task=fk.Task(model), federation=data, method=fk.FedAvg(), work=work, rounds=1, cohort=1
    )
    return fits_channels_last(settings, Oracle(settings.task, torch.device("cpu")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "batch", "expected"),
    [
        (fk.models.cnn, 10, True),
        (fk.models.resnet20, 50, True),
        (fk.models.vgg11, 50, True),
        (fk.models.vgg11, 10, False),  # more weights than activations
        (fk.models.resnet18_gn, 50, False),
        (Viewed, 50, False),
    ],
    ids=["cnn", "resnet20", "vgg11", "vgg11, short batches", "resnet18", "view"],
)
def test_channels_last_where_activations_outnumber_weights(make: Any, batch: int, expected: bool) -> None:
    assert fits(make(), batch) is expected


def test_channels_last_is_for_pictures() -> None:
    assert not fits(fk.models.logistic(12, 3), 50, shape=(12,))


def test_operations_and_activations_are_counted_by_layers() -> None:
    model, inputs = nn.Sequential(nn.Conv2d(2, 5, 3), nn.Flatten(), nn.Linear(80, 7)), torch.zeros(3, 2, 6, 6)
    assert forward_flops(model, inputs) == 2 * 3 * (4 * 4 * 5 * 2 * 9 + 80 * 7)
    assert activation_count(model, inputs) == 3 * (80 + 80 + 7)


def test_recurrent_layers_count_where_engines_are_tried() -> None:
    model, inputs = fk.models.char_lstm(9, embedding=4, hidden=6), torch.zeros(2, 5, dtype=torch.int64)
    head, layers = 6 * 9, 24 * 4 + 3 * 24 * 6
    assert forward_flops(model, inputs) == 2 * 2 * head
    assert forward_flops(model, inputs, recurrent=True) == 2 * 2 * (head + 5 * layers)
