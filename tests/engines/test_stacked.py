"""The stacked engine gives the serial engine's result up to rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import half_square, quadratic, tiny_net
from selecting import slow
from stacked_runs import EQUAL, RAGGED, WORK, both, distance, pictures, run
from torch import Tensor, nn
from variants import VARIANTS

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines.stacked import Stacked, engine, ragged
from fedkeel.models import simple
from fedkeel.settings.run_settings import RunSettings

PLUGINS: dict[str, Callable[[fk.Algorithm], fk.Algorithm]] = {
    "plain": lambda inner: inner,
    "relaxed": lambda inner: fk.relaxed(inner, 0.1),
    "sharp": lambda inner: fk.sharp(inner, 0.1),
}
SETTINGS = {
    "ragged, partial, decayed": (
        RAGGED,
        2,
        fk.Work(epochs=2, batch_size=4, lr=0.1, lr_decay=0.9, weight_decay=0.01),
    ),
    "ragged, full, clipped": (RAGGED, 4, fk.Work(steps=3, batch_size=5, lr=0.1, clip=0.3)),
    "equal, full, direction clipped": (
        EQUAL,
        4,
        fk.Work(epochs=1, batch_size=4, lr=0.1, clip=0.3, clip_on="direction"),
    ),
    "equal, partial, constant": (EQUAL, 2, WORK),
}


NO_PAIR = ("FedInit", "relaxed")  # is relaxed already
SHARP = {"FedSAM", "FedSpeed", "FedSMOO", "MoFedSAM", "FedGamma"}  # take no second sharp step


def cases() -> Iterator[Any]:
    """Yield every method: in the hardest setting, then with every plug-in in turn in one of the settings."""
    hardest, *_ = SETTINGS
    turn = cycle(SETTINGS)
    for number, method in enumerate(fk.METHODS):
        yield from [(method, "plain", hardest)] if number % 2 == 0 else slow((method, "plain", hardest))
        for plugin, setting in zip(PLUGINS, turn, strict=False):
            if not (
                (plugin == "sharp" and method.__name__ in SHARP)
                or (method.__name__, plugin) == NO_PAIR
                or (plugin, setting) == ("plain", hardest)
            ):
                yield from slow((method, plugin, setting))
    yield from slow(*((variant, "plain", hardest) for variant in VARIANTS))


@pytest.mark.filterwarnings("ignore:clip_on = 'direction'")
@pytest.mark.parametrize(("method", "plugin", "setting"), list(cases()))
def test_every_method_walks_as_on_serial(method: Any, plugin: str, setting: str) -> None:
    problem, cohort, work = SETTINGS[setting]
    made = PLUGINS[plugin](method())
    assert both(problem.task, problem.federation, made, cohort=cohort, work=work) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    [
        fk.Work(epochs=3, lr=0.1),
        fk.Work(steps=7, batch_size=4, lr=0.1),
        fk.Work(epochs=2, batch_size=100, lr=0.1),
        fk.Work(steps=1, batch_size=1, lr=0.1),
    ],
    ids=repr,
)
def test_each_client_takes_exactly_its_own_steps(work: fk.Work) -> None:
    assert both(RAGGED.task, RAGGED.federation, fk.FedNova(), work=work) < 1e-10
    assert both(RAGGED.task, RAGGED.federation, fk.FedLNAG(), work=work) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("first", ["initial", "none"])
def test_variants_of_plug_ins(first: str) -> None:
    for beta in (fk.Decayed(0.1, 0.9), fk.Adaptive(0.9)):
        made = fk.relaxed(fk.FedDyn(), beta, first=first, aggregate="walk", gamma="end")
        assert both(RAGGED.task, RAGGED.federation, made, cohort=3) < 1e-10
    assert both(RAGGED.task, RAGGED.federation, fk.SCAFFOLD(option="I"), cohort=3) < 1e-10
    assert both(RAGGED.task, RAGGED.federation, fk.FedLNAG(carry=False), cohort=3) < 1e-10
    assert both(RAGGED.task, RAGGED.federation, fk.stages((fk.FedDyn(), 1), fk.FedAvg())) < 1e-10


@pytest.mark.slow
def test_cohorts_of_varying_size_and_weights() -> None:
    options = {"cohort": 0.5, "sampling": "bernoulli", "weighting": "samples", "rounds": 5}
    assert both(RAGGED.task, RAGGED.federation, fk.SCAFFOLD(), **options) < 1e-10


def test_a_median_of_uploads() -> None:
    assert both(RAGGED.task, RAGGED.federation, fk.FedAvg(), reducer=fk.Median()) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 2, 3])
def test_a_cohort_larger_than_memory_is_taken_in_groups(
    clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(RAGGED.task, RAGGED.federation, fk.SCAFFOLD(), "stacked-uncompiled")
    monkeypatch.setattr(engine, "_bytes_per_client", lambda *_: engine._MEMORY // clients)
    assert distance(whole, run(RAGGED.task, RAGGED.federation, fk.SCAFFOLD(), "stacked-uncompiled")) < 1e-12


def test_long_walks_are_cut_into_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "_MOST_INDICES", 40)
    assert both(RAGGED.task, RAGGED.federation, fk.FedLNAG(), work=fk.Work(epochs=5, batch_size=4)) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[6, 6, 6], [7, 3, 1]])
def test_augmented_samples_are_the_same(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "_MOST_BYTES", 3 * 2 * 4 * 3 * 8)

    def jitter(x: Tensor, generator: torch.Generator) -> Tensor:
        return x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)

    problem = tiny_net(sizes)
    federation = fk.Federation.from_arrays(
        [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in problem.clients],
        augment=jitter,
        transform=torch.tanh,
    )
    work = fk.Work(epochs=3, batch_size=2, lr=0.1)
    assert both(problem.task, federation, fk.FedAvg(), work=work, cohort=2) < 1e-10


def test_any_mean_over_samples_may_be_the_loss() -> None:
    problem = quadratic([3, 8, 5])
    assert both(problem.task, problem.federation, fk.FedDyn()) < 1e-10
    model = nn.Linear(4, 2).double()
    assert both(fk.Task(model, nn.functional.mse_loss, {}), problem.federation, fk.FedAvg()) < 1e-10


class Shifted(nn.Module):
    """Adds a constant buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.full((1, 8, 8), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


@pytest.mark.slow
def test_convolutions_frozen_layers_and_constant_buffers() -> None:
    torch.manual_seed(0)
    body = [Shifted(), nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*body, nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    model[6].requires_grad_(False)
    task = fk.Task(model)
    assert both(task, pictures([5, 9, 2]), fk.MOON(), cohort=2) < 1e-10
    with torch.no_grad():
        model[6].weight.mul_(-1)  # a task that changed: the recorded step must see it
    assert both(task, pictures([5, 9, 2]), fk.MOON(), cohort=2) < 1e-10


@pytest.mark.slow
def test_float32_stays_within_the_stated_tolerance() -> None:
    dataset = fk.data.load("digits")
    federation = dataset.split(fk.DirichletByClass(0.3), clients=10, seed=0)
    task = fk.Task(fk.models.build("mlp", shape=(64,), classes=10))
    options = {"cohort": 5, "work": fk.Work(epochs=2, batch_size=20, lr=0.1), "rounds": 3}
    x = [
        run(task, federation, fk.SCAFFOLD(), name, **options).server.x
        for name in ("serial", "stacked-uncompiled")
    ]
    assert float((x[0] - x[1]).norm() / x[0].norm()) < 1e-5


def test_a_client_that_diverges_is_named() -> None:
    clients = [(torch.randn(4, 4).double() * scale, torch.randn(4, 2).double()) for scale in (1, 1, 1e200)]
    federation = fk.Federation.from_arrays(clients)
    task = fk.Task(nn.Linear(4, 2).double(), half_square, {})
    found = []
    for name in ("serial", "stacked-uncompiled"):
        with pytest.raises(fk.Diverged) as problem:
            run(task, federation, fk.FedAvg(), name)
        found.append((str(problem.value), problem.value.round, problem.value.client))
    assert found[0] == found[1]
    assert found[0][1:] == (0, 2)


def test_a_run_goes_on_under_another_engine(tmp_path: Path) -> None:
    options = {"cohort": 2, "run_dir": tmp_path / "run", "keep_client_states": True}
    run(RAGGED.task, RAGGED.federation, fk.SCAFFOLD(), "serial", **options)
    options |= {"rounds": 4, "resume": True}
    with pytest.warns(UserWarning, match="its last bits may differ"):
        switched = run(RAGGED.task, RAGGED.federation, fk.SCAFFOLD(), "stacked-uncompiled", **options)
    straight = run(RAGGED.task, RAGGED.federation, fk.SCAFFOLD(), "serial", rounds=4, cohort=2)
    assert distance(straight, switched) < 1e-10


def test_equal_calls_give_equal_bits() -> None:
    a, b = (run(RAGGED.task, RAGGED.federation, fk.FedSMOO(), "stacked-uncompiled") for _ in range(2))
    assert distance(a, b) == 0.0


def test_the_model_and_the_random_state_are_left_alone() -> None:
    model = simple.logistic(64, 3).double()
    before, state = [p.clone() for p in model.parameters()], torch.get_rng_state()
    run(fk.Task(model), pictures([4, 6]), fk.FedAvg(), "stacked-uncompiled")
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert torch.equal(state, torch.get_rng_state())


def test_groups_are_a_function_of_the_cohort_alone() -> None:
    problem = tiny_net([4] * 50)
    settings = RunSettings(
        task=problem.task,
        federation=problem.federation,
        method=fk.FedAvg(),
        work=WORK,
        rounds=1,
        cohort=10,
    )
    made = Stacked(settings, Oracle(problem.task, torch.device("cpu")))
    made.capacity = 25
    assert made._division(10) == (10, 10)
    assert made._division(11) == (11, 16)
    assert made._division(50) == (25, 25)
    assert made._division(24) == (24, 24)
