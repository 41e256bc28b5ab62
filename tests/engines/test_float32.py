"""In float32 a walk ends as near to the exact one as a textbook loop's: no step rounds its small terms away.

The textbook writes the rule of `algorithms.md` term by term, in PyTorch; in float64 it is the exact walk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from selecting import one_in
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.core.algorithm import Algorithm, Plan, Walk, Wrapper, method
from fedkeel.core.oracle import Oracle
from fedkeel.core.walk import sharp_of
from fedkeel.engines import build
from fedkeel.engines.contract import Choice, RoundRequest
from fedkeel.engines.stacked import engine as stacked
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import ClientMemory, Record, leaves, rebuild
from fedkeel.tensors.vector import Vector

STEPS = 300  # enough: a step that rounds a term away ends ten times as far from the exact end
LR, WEIGHT_DECAY = 1e-3, 1e-4  # a step shrinks a weight by 1e-7 of it: about one unit in its last place
FEATURES, CLASSES, SAMPLES = 120, 4, 12
VARIANTS = {make.__name__: make for make in fk.METHODS} | {
    "FedProx(1)": lambda: fk.FedProx(1.0),
    "relaxed SCAFFOLD": lambda: fk.relaxed(fk.SCAFFOLD(), 0.1),
    "FedSpeed, blended": lambda: fk.FedSpeed(blend=0.5),
}

KINDS = [  # of stacked steps: with a push and a pull, momentum, a sharp gradient, an objective, …
    "FedDyn",
    "FedAvg",
    "FedCM",
    "FedLNAG",
    "FedSAGD",
    "FedSAM",
    "FedSMOO",
    "FedSpeed, blended",
    "MOON",
    "relaxed SCAFFOLD",
]


@method
class EndModel(Wrapper):
    """The inner method's walk; what is sent is where it ends."""

    class Up(NamedTuple):
        end: Vector

    def finish(self, walk: Walk, down: Record, client: Record, facts: fk.Facts) -> tuple[Record, Record]:
        return self.Up(walk.end), client


def logistic() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 10), nn.Tanh(), nn.Linear(10, CLASSES))


def no_loss(output: Tensor, target: Tensor) -> Tensor:
    return 0.0 * output.sum()


@cache
def task(
    model: Callable[[], nn.Module], dtype: torch.dtype, loss: Any = nn.functional.cross_entropy
) -> fk.Task:
    """Return a task whose weights are normal numbers, the same in both precisions."""
    made = model()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return fk.Task(made.to(dtype), loss=loss)


@cache
def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, FEATURES, generator=generator)
    return x, torch.randint(0, CLASSES, (SAMPLES,), generator=generator)


def records(algorithm: Algorithm, x: Vector) -> tuple[Record, Record]:
    """Return what is broadcast and what the client remembers, as if some rounds had passed."""
    generator = torch.Generator().manual_seed(2)

    def later(record: Record) -> Record:
        found = {}
        for name, tensor in leaves(record):
            drawn = torch.randn(tensor.shape, generator=generator).to(x)
            found[name] = tensor if name.endswith("x") else tensor + 0.01 * drawn
        return rebuild(record, found)

    return algorithm.broadcast(later(algorithm.init(x))), later(algorithm.init_client(x))


def logistic_gradient(at: Vector) -> Vector:
    """Return the gradient of the mean cross-entropy of a logistic model, by hand."""
    x, y = samples()
    x = x.to(at)
    weights, bias = at[: CLASSES * FEATURES].view(CLASSES, FEATURES), at[CLASSES * FEATURES :]
    errors = torch.softmax(torch.addmm(bias, x, weights.T), 1)
    errors[torch.arange(SAMPLES), y] -= 1
    errors /= SAMPLES
    return torch.cat([(errors.T @ x).flatten(), errors.sum(0)])


def textbook(algorithm: Algorithm, oracle: Oracle, down: Record, memory: Record) -> Vector:
    """Return the end of the walk, every term of every step written out."""
    plan: Plan = algorithm.plan(down, memory, fk.Facts.of(SAMPLES, SAMPLES, down.x))
    anchor = plan.start if plan.anchor is None else plan.anchor
    sharp, momentum = sharp_of(plan.sharp), plan.momentum
    y = plan.start.clone()
    b = None if momentum is None else momentum.buffer
    dual = None if sharp is None else sharp.dual
    logistic_size = CLASSES * (FEATURES + 1)

    def g(at: Vector) -> Vector:
        if plan.objective is None and at.numel() == logistic_size:
            return logistic_gradient(at)
        oracle.point.copy_(at)
        oracle.gradient(samples(), plan.objective)
        return oracle.grad.clone()

    for _ in range(STEPS):
        gradient = g(y)
        if sharp is not None:
            q = gradient - (0 if dual is None else dual) - (0 if sharp.tilt is None else sharp.tilt)
            e = sharp.rho * q / (q.norm() + 1e-7)
            dual = None if dual is None else dual + e - (0 if sharp.tilt is None else sharp.tilt)
            gradient = (1 - sharp.blend) * gradient + sharp.blend * g(y + e)
        direction = plan.gain * gradient + plan.pull * (y - anchor) + plan.decay * y + WEIGHT_DECAY * y
        if plan.push is not None:
            direction = direction + plan.push
        if momentum is not None:
            b = direction if b is None else momentum.beta * b + direction
            direction = direction + momentum.beta * b if momentum.nesterov else b
        y = y - LR * direction
    return y


@cache
def textbook_ends(name: str, model: Callable[[], nn.Module], loss: Any = nn.functional.cross_entropy) -> Any:
    """Return where the textbook ends in float64 and in float32."""
    ends = []
    for dtype in (torch.float64, torch.float32):
        oracle, algorithm = Oracle(task(model, dtype, loss), torch.device("cpu")), VARIANTS[name]()
        ends.append(textbook(algorithm, oracle, *records(algorithm, oracle.point.clone())))
    return ends


def walked(
    name: str, model: Callable[[], nn.Module], engine: str, loss: Any = nn.functional.cross_entropy
) -> Vector:
    """Return where an engine ends in float32."""
    algorithm = EndModel(VARIANTS[name]())
    settings = RunSettings(
        task=task(model, torch.float32, loss),
        federation=fk.Federation.from_arrays([samples()]),
        method=algorithm,
        work=fk.Work(steps=STEPS, lr=LR, weight_decay=WEIGHT_DECAY),
        rounds=1,
        cohort=1,
    )
    oracle = Oracle(settings.task, torch.device("cpu"))
    down, memory = records(algorithm.inner, oracle.point.clone())
    request = RoundRequest(algorithm, 0, LR, down, oracle.buffers.clone(), [0], [1.0])
    result = build(Choice(engine, 1), settings, oracle).run(request, [ClientMemory(memory)])
    end: Vector = result.upload.up.end
    return end


def error(name: str, model: Callable[[], nn.Module], engine: str) -> float:
    """Return how far from the exact end an engine ends in float32, in units of the textbook's distance."""
    exact, plain = textbook_ends(name, model)
    ours = walked(name, model, engine)
    return float((ours.double() - exact).norm() / (plain.double() - exact).norm())


@pytest.mark.parametrize("name", one_in(30, VARIANTS))
def test_every_method_walks_as_exactly_as_a_textbook(name: str) -> None:
    assert error(name, logistic, "serial") < 1.25


@pytest.mark.parametrize("name", one_in(5, KINDS, pytest.mark.slow(3)))
@pytest.mark.slow
def test_every_kind_of_stacked_step_does_too(name: str) -> None:
    assert error(name, logistic, "stacked-uncompiled") < 1.25


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FedDyn", "FedLNAG"])
def test_stacked_networks_do_too(name: str) -> None:
    assert error(name, network, "stacked-uncompiled") < 1.25


@pytest.mark.slow(2)
@pytest.mark.parametrize("engine", ["serial", "stacked-uncompiled"])
def test_a_momentum_near_one_is_more_exact_than_as_a_factor(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VARIANTS, "momentum near one", lambda: fk.FedLNAG(beta=0.999999))
    monkeypatch.setattr(sys.modules[__name__], "LR", 1e-6)
    monkeypatch.setattr(sys.modules[__name__], "STEPS", 2000)
    assert error("momentum near one", logistic, engine) < 0.9


@pytest.mark.slow
def test_in_the_span_of_the_samples_a_walk_is_more_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = error("FedDyn", logistic, "stacked-uncompiled")
    monkeypatch.setattr(stacked, "linear_model", lambda *_: None)
    assert 4 * inside < error("FedDyn", logistic, "stacked-uncompiled") < 1.25


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["serial", "stacked-uncompiled"])
def test_weights_without_gradients_decay_at_the_right_rate(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With factors near one they would decay a seventh too fast."""
    monkeypatch.setattr(stacked, "linear_model", lambda *_: None)
    exact, plain = textbook_ends("FedAvg", network, no_loss)
    first = Oracle(task(network, torch.float64), torch.device("cpu")).point
    decay, expected, textbooks = (
        float(first.norm() - end.double().norm())
        for end in (walked("FedAvg", network, engine, no_loss), exact, plain)
    )
    assert abs(decay / expected - 1) < 0.06
    assert abs(decay / expected - 1) < 1.1 * abs(textbooks / expected - 1) + 1e-3
