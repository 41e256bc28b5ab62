"""Linear models walk in the span of their samples: the same walk, in fewer numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from selecting import one_in
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines.stacked import engine, span
from fedkeel.settings.run_settings import RunSettings

SIZES = [30, 17, 24, 8]
WORK = {"epochs": 8, "batch_size": 8, "lr": 0.05, "weight_decay": 1e-3}
METHODS = {
    "FedAvg": fk.FedAvg(),
    "FedProx": fk.FedProx(),
    "SCAFFOLD": fk.SCAFFOLD(),
    "FedDyn": fk.FedDyn(),
    "FedDyn by size": fk.FedDyn(by_size=True),
    "FedCM": fk.FedCM(),
    "FedLNAG": fk.FedLNAG(),
    "FedSAM": fk.FedSAM(),
    "FedSpeed": fk.FedSpeed(),
    "FedSAGD": fk.FedSAGD(),
    "relaxed SCAFFOLD": fk.relaxed(fk.SCAFFOLD(), beta=0.1),
}
OUTSIDE = {"FedSMOO": fk.FedSMOO(), "MOON": fk.MOON()}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[span.SpanWalk]:
    """Return the walks in a span that are made during a test."""
    made: list[span.SpanWalk] = []

    class Noted(span.SpanWalk):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(engine, "SpanWalk", Noted)
    return made


def pictures(sizes: list[int] = SIZES, classes: int = 4) -> fk.Federation:
    generator = torch.Generator().manual_seed(1)
    return fk.Federation.from_arrays(
        [
            (
                torch.randn(n, 6, 20, generator=generator, dtype=torch.float64),
                torch.randint(0, classes, (n,), generator=generator),
            )
            for n in sizes
        ]
    )


def logistic() -> fk.Task:
    torch.manual_seed(0)
    return fk.Task(fk.models.logistic(120, 4).double())


def vector(result: fk.Result) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in result.model.parameters()])


def distance(task: fk.Task, data: fk.Federation, method: fk.Algorithm, *, how: str, **work: Any) -> float:
    """Return how far the stacked result is from the serial one, relative to the model."""
    options: dict[str, Any] = {"rounds": 2, "cohort": 3, "work": fk.Work(**{**WORK, **work}), "threads": 1}
    alone, together = (flat.train(task, data, method, engine=name, **options) for name in ("serial", how))
    assert together.history[-1]["train_loss"] == pytest.approx(alone.history[-1]["train_loss"], rel=1e-10)
    assert [row["gradients"] for row in together.history] == [row["gradients"] for row in alone.history]
    last = together.history[-1], alone.history[-1]
    assert last[0]["costs/total_forwards"] == last[1]["costs/total_forwards"]
    return float((vector(together) - vector(alone)).norm() / vector(alone).norm())


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every method with clipped gradients, and in turn in one of the other settings."""
    others = cycle([{}, {"batch_size": None, "epochs": 20}])
    for name in METHODS:
        yield name, {"clip": 0.5}
        yield name, next(others)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "work"), one_in(10, cases()))
def test_every_method_walks_the_serial_walk(name: str, work: Any, spans: list[span.SpanWalk]) -> None:
    assert distance(logistic(), pictures(), METHODS[name], how="stacked-uncompiled", **work) < 1e-10
    assert len(spans) == 2


def rising(round: int, rounds: int, step: int, steps: int) -> float:
    return (step + 1) / steps


@pytest.mark.parametrize(
    ("method", "work"),
    [
        (fk.FedNova(0.2), {"momentum": 0.6}),
        (fk.SCAFFOLD(), {"momentum": 0.6, "nesterov": True, "schedule": rising}),
        (fk.FedLNAG(damped=True), {"schedule": rising}),
    ],
    ids=["momentum", "Nesterov, rising rates", "damped, rising rates"],
)
def test_momentum_and_rates_of_steps_stay_in_the_span(
    method: fk.Algorithm, work: Any, spans: list[span.SpanWalk]
) -> None:
    assert distance(logistic(), pictures(), method, how="stacked-uncompiled", **work) < 1e-10
    assert len(spans) == 2


@pytest.mark.slow
def test_clipping_the_corrected_direction_stays_outside(spans: list[span.SpanWalk]) -> None:
    clip = {"clip": 0.5, "clip_on": "corrected"}
    assert distance(logistic(), pictures(), fk.FedProx(1.0), how="stacked-uncompiled", **clip) < 1e-10
    assert not spans


@pytest.mark.slow(9)
def test_a_compiled_step_does_too(spans: list[span.SpanWalk]) -> None:
    assert distance(logistic(), pictures(), fk.SCAFFOLD(), how="stacked") < 1e-10
    assert spans


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTSIDE)
def test_other_norms_and_objectives_stay_outside_the_span(name: str, spans: list[span.SpanWalk]) -> None:
    assert distance(logistic(), pictures(), OUTSIDE[name], how="stacked-uncompiled") < 1e-9
    assert not spans


@pytest.mark.slow
def test_clipping_a_direction_and_tracing_probes_stay_outside(spans: list[span.SpanWalk]) -> None:
    far = distance(
        logistic(), pictures(), fk.SCAFFOLD(), how="stacked-uncompiled", clip=0.5, clip_on="direction"
    )
    assert far < 1e-10
    work = fk.Work(**WORK)
    probes = [fk.probes.Drift()]
    rows = [
        fk.train(
            logistic(),
            pictures(),
            fk.FedAvg(),
            rounds=2,
            cohort=2,
            work=work,
            execution=fk.Execution(name),
            probes=probes,
        )
        for name in ("serial", "stacked-uncompiled")
    ]
    assert rows[0].history[-1]["drift"] == pytest.approx(rows[1].history[-1]["drift"], rel=1e-9)
    assert not spans


@pytest.mark.slow
def test_cohorts_of_varying_size(spans: list[span.SpanWalk]) -> None:
    options: dict[str, Any] = {"rounds": 5, "cohort": 0.5, "sampling": "bernoulli", "work": fk.Work(**WORK)}
    data = pictures([30, 30, 21, 5, 16, 30])
    alone, together = (
        flat.train(logistic(), data, fk.SCAFFOLD(), engine=name, **options)
        for name in ("serial", "stacked-uncompiled")
    )
    assert torch.allclose(vector(alone), vector(together), rtol=0, atol=1e-12)
    assert spans


class Scaled(nn.Module):
    """A user's own linear model, without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(120, 4, bias=False, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.tanh(x).flatten(1) / 3)


def test_a_model_of_the_users_own_without_a_bias(spans: list[span.SpanWalk]) -> None:
    torch.manual_seed(0)
    assert distance(fk.Task(Scaled()), pictures(), fk.SCAFFOLD(), how="stacked-uncompiled") < 1e-10
    assert spans


def test_regression_with_a_loss_of_the_users_own(spans: list[span.SpanWalk]) -> None:
    generator = torch.Generator().manual_seed(1)
    data = fk.Federation.from_arrays(
        [
            tuple(torch.randn(16, k, generator=generator, dtype=torch.float64) for k in (90, 2))
            for _ in range(3)
        ]
    )
    torch.manual_seed(0)
    task = fk.Task(nn.Linear(90, 2, dtype=torch.float64), loss=mse_loss, metrics={})
    assert distance(task, data, fk.FedAvg(), how="stacked-uncompiled") < 1e-10
    assert spans


class Wrapped(Scaled):
    def __init__(self, before: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.before, self.after = before, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.inner(self.before(x.flatten(1))))


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


@pytest.mark.parametrize(
    "model",
    [
        Wrapped(nn.Identity(), nn.ReLU()),
        Wrapped(Centred(), nn.Identity()),
        Wrapped(nn.Dropout(0.5), nn.Identity()),
        Wrapped(nn.Linear(120, 120, dtype=torch.float64), nn.Identity()),
        fk.models.mlp(120, (5,), 4).double(),
    ],
    ids=["nonlinear output", "samples mixed", "dropout", "two layers", "mlp"],
)
def test_models_that_are_not_linear_are_found_out(model: nn.Module) -> None:
    data = pictures()
    task = fk.Task(model)
    settings = RunSettings(
        task=task, federation=data, method=fk.FedAvg(), work=fk.Work(**WORK), rounds=1, cohort=2
    )
    assert span.linear_model(settings, Oracle(task, torch.device("cpu"))) is None


def test_a_client_with_more_samples_than_features_walks_as_other_models_do(
    spans: list[span.SpanWalk],
) -> None:
    assert (
        distance(logistic(), pictures([200, 150, 130]), fk.FedAvg(), how="stacked-uncompiled", epochs=1)
        < 1e-10
    )
    assert not spans


def test_gram_matrices_are_cached_up_to_a_bound(
    spans: list[span.SpanWalk], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 3 * 30 * 30 * 8
    monkeypatch.setattr(span, "_GRAM_CACHE", bound)
    assert distance(logistic(), pictures([30] * 9), fk.FedAvg(), how="stacked-uncompiled") < 1e-10
    assert len(spans[-1]._linear._grams) == 3


@pytest.mark.slow
def test_a_resumed_run_whose_cache_is_empty_goes_on_to_the_bit(
    spans: list[span.SpanWalk], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"cohort": 3, "work": fk.Work(**WORK), "engine": "stacked-uncompiled"}
    task = fk.Task(copy.deepcopy(logistic().model).float())
    data = pictures([30, 17, 24, 8, 30, 11])
    whole = flat.train(task, data, fk.SCAFFOLD(), rounds=8, **options)
    options |= {"run_dir": tmp_path / "run", "keep_client_states": True}
    flat.train(task, data, fk.SCAFFOLD(), rounds=4, **options)
    resumed = flat.train(task, data, fk.SCAFFOLD(), rounds=8, resume=True, **options)
    assert torch.equal(vector(whole), vector(resumed))
    assert spans
