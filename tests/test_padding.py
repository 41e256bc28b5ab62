"""Padding does not count: in the loss, in the accuracy, in any engine, at any number of samples."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from problems import session_of
from torch import Tensor, nn
from torch.nn import functional

import fedkeel as fk
from fedkeel.core import evaluation

CLASSES, TOKENS = 4, 5
PADDED = -100


def tagger() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, CLASSES * TOKENS), nn.Unflatten(1, (CLASSES, TOKENS))).double()


def sequences(samples: int, *, seed: int, shortest: int = 0) -> tuple[Tensor, Tensor]:
    """Return sentences of unequal length; some have no token at all."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 3, dtype=torch.float64, generator=draw)
    y = torch.randint(1, CLASSES, (samples, TOKENS), generator=draw)
    lengths = torch.randint(shortest, TOKENS + 1, (samples,), generator=draw)
    return x, y.where(torch.arange(TOKENS) < lengths[:, None], torch.tensor(PADDED))


def token_loss(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    total = functional.cross_entropy(output, target, ignore_index=PADDED, reduction="sum")
    return total, (target != PADDED).sum()


@fk.mean_over_samples
def token_accuracy(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    real = target != PADDED
    return ((output.argmax(1) == target) & real).sum(), real.sum()


def unmarked(output: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(output, target)


LOSSES: dict[str, Any] = {
    "torch's": functional.cross_entropy,
    "a module": nn.CrossEntropyLoss(label_smoothing=0.1),
    "a sum and a weight": token_loss,
}


def evaluated(task: fk.Task, data: tuple[Tensor, Tensor], **options: Any) -> dict[str, float]:
    federation = fk.Federation.from_arrays(
        [sequences(40, seed=1), sequences(40, seed=2)], test=data, classes=CLASSES
    )
    result = fk.train(
        task,
        federation,
        fk.FedAvg(),
        rounds=1,
        cohort=2,
        work=fk.Work(steps=1, batch_size=20, lr=1e-300),
        **options,
    )
    return result.history[-1]


@pytest.mark.parametrize("engine", ["serial", "processes"])
@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_accuracy_are_of_real_tokens(loss: str, engine: str) -> None:
    x, y = sequences(2500, seed=3)
    metrics = {"accuracy": fk.accuracy, "tokens": token_accuracy}
    model = tagger()
    row = evaluated(fk.Task(model, LOSSES[loss], metrics), (x, y), execution=fk.Execution(engine))
    with torch.no_grad():
        output = model(x)
    real = y != PADDED
    right = (output.argmax(1) == y)[real].double().mean()
    assert row["accuracy"] == pytest.approx(float(right), rel=1e-12)
    assert row["tokens"] == pytest.approx(float(right), rel=1e-12)
    smoothing = 0.1 if loss == "a module" else 0.0
    whole = functional.cross_entropy(output.transpose(1, 2)[real], y[real], label_smoothing=smoothing)
    assert row["loss"] == pytest.approx(float(whole), rel=1e-12)


def test_a_tagger_that_is_right_on_every_token_has_an_accuracy_of_one() -> None:
    y = torch.tensor([[1, 2, 0, 0, 0], [3, 1, 2, 3, 0]])
    output = functional.one_hot(y.where(y != 0, torch.tensor(1)), CLASSES).transpose(1, 2).double()
    task = fk.Task(nn.Linear(1, 1), partial(functional.cross_entropy, ignore_index=0))
    assert float(task.metrics["accuracy"](output, y)) == 1.0
    assert float(fk.Task(nn.Linear(1, 1)).metrics["accuracy"](output, y)) < 1.0


def test_a_loss_with_a_weight_is_exact_beyond_the_memory_for_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sequences(2500, seed=3)
    small = evaluated(fk.Task(tagger(), token_loss, {}), data)["loss"]
    monkeypatch.setattr(evaluation, "OUTPUT_BYTES", 1000)
    assert evaluated(fk.Task(tagger(), token_loss, {}), data)["loss"] == small
    with pytest.raises(fk.ConfigError, match=r"as tokens, return \(sum, weight\)"):
        evaluated(fk.Task(tagger(), unmarked, {}), data)


@pytest.mark.parametrize("method", [fk.FedAvg(), fk.SCAFFOLD(), fk.MimeLite()], ids=repr)
@pytest.mark.parametrize("loss", LOSSES)
def test_engines_agree_on_clients_of_unequal_sizes(loss: str, method: fk.Algorithm) -> None:
    """A shorter minibatch is filled up in the stacked engine: its tokens must not count either.

    The mean over no token is NaN in torch, and zero for a sum and a weight.
    """
    shortest = 0 if LOSSES[loss] is token_loss else 1
    clients = [sequences(size, seed=size, shortest=shortest) for size in (7, 12, 16, 9)]
    federation = fk.Federation.from_arrays(clients, classes=CLASSES)
    work = fk.Work(epochs=2, batch_size=6, lr=0.5)
    ends = []
    for engine in ("serial", "stacked-uncompiled", "processes"):
        session = session_of(
            fk.Task(tagger(), LOSSES[loss], {}),
            federation,
            method,
            engine=engine,
            rounds=3,
            cohort=4,
            work=work,
        )
        rows = list(session.rounds())
        assert all(torch.isfinite(torch.tensor(row["train_loss"])) for row in rows)
        ends.append(session.state.server.x.clone())
        session.close()
    assert torch.equal(ends[0], ends[2])
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-11)


def test_a_full_gradient_is_of_all_real_tokens() -> None:
    """Put together from parts, each would count alike, however many real tokens it has."""
    data = sequences(2600, seed=5)
    federation = fk.Federation.from_arrays([data], classes=CLASSES)
    session = session_of(
        fk.Task(tagger(), functional.cross_entropy, {}),
        federation,
        fk.FedAvg(),
        rounds=1,
        cohort=1,
        work=fk.Work(steps=1, batch_size=10),
    )
    runner, oracle = session.context.engine.runner, session.context.oracle
    found = runner.full_gradient(0, oracle.point.clone())
    oracle.gradient(data)
    torch.testing.assert_close(found, oracle.grad, rtol=1e-12, atol=1e-14)
    session.close()
