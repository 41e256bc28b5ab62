"""What the stacked engine cannot run, it refuses with the reason."""

from __future__ import annotations

import pytest
import torch
from stacked_runs import EQUAL, RAGGED, both, run
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedkeel as fk
from fedkeel.models.recurrent import char_lstm


def test_our_character_model_is_refused_with_the_reason() -> None:
    generator = torch.Generator().manual_seed(0)
    clients = [
        (torch.randint(0, 6, (n, 5), generator=generator), torch.randint(0, 6, (n,), generator=generator))
        for n in (4, 7)
    ]
    task = fk.Task(char_lstm(6, embedding=3, hidden=4).double())
    with pytest.raises(fk.ConfigError, match=r"'lstm'.*recurrent kernel"):
        both(task, fk.Federation.from_arrays(clients), fk.FedAvg())


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Counting(nn.Module):
    """Keeps a running mean in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.add_(x.mean().detach())
        return x


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x[:, None])[0][:, -1]


def total(output: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(output, target, reduction="sum")


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Dropout(0.5), "the layer '0' (Dropout) draws random numbers"),
        (
            nn.Sequential(nn.Unflatten(1, (1, 3)), nn.BatchNorm1d(1), nn.Flatten()),
            "the layer '0.1' (BatchNorm1d) mixes the samples",
        ),
        (Last(), "the layer '0.lstm' (LSTM) runs a recurrent kernel"),
        (Noisy(), "cannot be mapped over clients"),
        (Centred(), "minibatches of unequal size"),
        (Counting(), "training changes the model's buffer '0.mean'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_cannot_be_stacked_says_why(layer: nn.Module, reason: str) -> None:
    model = nn.Sequential(layer, nn.Linear(4 if isinstance(layer, Last) else 3, 4)).double()
    with pytest.raises(fk.ConfigError) as problem:
        run(fk.Task(model), RAGGED.federation, fk.FedAvg(), "stacked-uncompiled")
    assert reason in str(problem.value)
    assert "choose engine='serial'" in str(problem.value)


def test_a_loss_that_is_no_mean_needs_equal_minibatches() -> None:
    model = nn.Linear(3, 4).double()
    assert both(fk.Task(model, total), EQUAL.federation, fk.FedAvg()) < 1e-10
    with pytest.raises(fk.ConfigError, match="not a mean over samples"):
        run(fk.Task(model, total), RAGGED.federation, fk.FedAvg(), "stacked-uncompiled")


def test_a_loss_with_weights_of_classes_is_seen_where_every_client_has_one_class() -> None:
    clients = [
        (torch.randn(size, 3).double(), torch.full((size,), i % 4)) for i, size in enumerate([9, 8, 5, 7])
    ]
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 2.0, 5.0]).double())
    with pytest.raises(fk.ConfigError, match="not a mean over samples"):
        run(
            fk.Task(nn.Linear(3, 4).double(), loss),
            fk.Federation.from_arrays(clients),
            fk.FedAvg(),
            "stacked-uncompiled",
        )


def test_what_mixes_samples_may_be_stacked_with_equal_minibatches() -> None:
    model = nn.Sequential(Centred(), nn.Linear(3, 4)).double()
    assert both(fk.Task(model), EQUAL.federation, fk.FedAvg()) < 1e-10
