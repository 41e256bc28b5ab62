"""Each client has its own copy of the buffers that training changes, in the stacked engine too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from selecting import one_in
from stacked_runs import distance, pictures, run
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.engines.stacked import engine

METHODS = [fk.FedAvg(), fk.SCAFFOLD(), fk.FedSAM(rho=0.1), fk.MOON(), fk.FedLNAG(), fk.sharp(fk.MOON(), 0.1)]
WORK = fk.Work(epochs=2, batch_size=4, lr=0.1)
SIZES = [12, 4, 8]  # minibatches are equally long, walks are not


def flat(sizes: list[int]) -> fk.Federation:
    generator = torch.Generator().manual_seed(0)
    return fk.Federation.from_arrays(
        [
            (
                2 + torch.randn(n, 3, generator=generator, dtype=torch.float64),
                torch.randint(0, 4, (n,), generator=generator),
            )
            for n in sizes
        ]
    )


def narrow(norm: nn.Module | None = None) -> fk.Task:
    torch.manual_seed(0)
    first = norm or nn.BatchNorm1d(5)
    return fk.Task(nn.Sequential(nn.Linear(3, 5), first, nn.Tanh(), nn.Linear(5, 4)).double())


def wide() -> fk.Task:
    torch.manual_seed(0)
    body = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return fk.Task(
        nn.Sequential(*body, nn.Linear(36, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()
    )


def both(task: fk.Task, federation: fk.Federation, method: Any, **options: Any) -> float:
    """Return how far apart two engines end, the model's buffers and its losses in each round with them."""
    options = {"work": WORK, "evaluate_on": "clients", **options}
    one, other = (run(task, federation, method, name, **options) for name in ("serial", "stacked-uncompiled"))
    pairs = zip(one.model.buffers(), other.model.buffers(), strict=True)
    apart = [float((a - b).abs().max()) for a, b in pairs if a.is_floating_point()]
    assert any(not torch.equal(a, b) for a, b in zip(one.model.buffers(), task.model.buffers(), strict=True))
    losses = [abs(a["loss"] - b["loss"]) for a, b in zip(one.history, other.history, strict=True)]
    return max([distance(one, other), *apart, *losses])


@pytest.mark.parametrize("method", one_in(9, METHODS), ids=repr)
def test_batchnorm_walks_as_on_serial(method: Any) -> None:
    assert both(narrow(), flat(SIZES), method) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("method", [fk.FedSAM(rho=0.1), fk.MOON()], ids=repr)
def test_batchnorm_of_pictures_does_too(method: Any) -> None:
    assert both(wide(), pictures(SIZES), method) < 1e-10


@pytest.mark.slow
def test_full_gradients_do_not_change_statistics() -> None:
    assert both(narrow(), flat(SIZES), fk.SCAFFOLD(option="I")) < 1e-10


@pytest.mark.slow
def test_groups_empty_slots_and_other_ways_to_reduce(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"cohort": 0.5, "sampling": "bernoulli", "rounds": 5}
    assert both(narrow(), flat([4, 8, 12, 4, 8, 4]), fk.SCAFFOLD(), weighting="samples", **options) < 1e-10
    assert both(narrow(), flat(SIZES), fk.FedAvg(), reducer=fk.Median()) < 1e-10
    monkeypatch.setattr(engine, "_bytes_per_client", lambda *_: engine._MEMORY // 2)
    assert both(narrow(), flat(SIZES), fk.SCAFFOLD(option="I"), probes=[fk.probes.Divergence()]) < 1e-10


class Remembering(nn.Module):
    """Takes a running mean away, counts its minibatches, and weighs by the count."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, 5))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x - self.mean
        self.seen.add_(1)
        self.mean.mul_(0.9).add_(x.mean(0, keepdim=True).detach() / self.seen)
        return x - self.mean


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "methods"),
    [
        (Remembering(), [fk.FedAvg(), fk.FedSAM(rho=0.1), fk.MOON()]),
        (nn.BatchNorm1d(5, affine=False), [fk.FedSAM(rho=0.1)]),
        (nn.BatchNorm1d(5, momentum=None), [fk.FedAvg(), fk.MOON()]),
    ],
    ids=repr,
)
def test_any_buffers_may_change_and_count(layer: nn.Module, methods: list[Any]) -> None:
    for method in methods:
        assert both(narrow(layer), flat(SIZES), method) < 1e-10


@pytest.mark.parametrize(
    ("layer", "sizes", "reason"),
    [
        (
            nn.BatchNorm1d(5),
            [4, 7],
            "the layer '1' (BatchNorm1d) mixes the samples of a minibatch, and clients",
        ),
        (nn.BatchNorm1d(5, track_running_stats=False), [4, 7], "mixes the samples of a minibatch"),
        (
            Remembering(),
            [4, 7],
            "training changes the model's buffer '1.mean', and clients have minibatches of",
        ),
        (nn.Dropout(0.5), [4, 8], "keyed ones cannot be replayed for many at once"),
    ],
    ids=lambda value: repr(value) if isinstance(value, nn.Module) else "",
)
def test_what_is_refused_says_why(layer: nn.Module, sizes: list[int], reason: str) -> None:
    with pytest.raises(fk.ConfigError) as problem:
        run(narrow(layer), flat(sizes), fk.FedAvg(), "stacked-uncompiled", work=WORK)
    assert reason in str(problem.value)


@pytest.mark.slow(4)
def test_a_compiled_step_changes_statistics_too() -> None:
    task, federation = narrow(), flat(SIZES)
    one, other = (
        run(task, federation, fk.FedSAM(rho=0.1), name, work=WORK) for name in ("serial", "stacked")
    )
    assert distance(one, other) < 1e-10
    for a, b in zip(one.model.buffers(), other.model.buffers(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)
