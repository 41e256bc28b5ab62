"""Targets that a loss would silently take for something else are refused; odd ones that are meant are not."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from one_round import federation, linear, train
from torch import Tensor, nn
from torch.nn import functional

import fedkeel as fk

RNG = np.random.default_rng(1)


FLAT = nn.Flatten(0)
REAL, LABELS = RNG.normal(size=6), [0, 1, 2, 0, 1, 2]


def task(
    outputs: int, loss: Any = functional.cross_entropy, metrics: Any = None, *more: nn.Module
) -> fk.Task:
    return fk.Task(linear(outputs, *more), loss, {} if metrics is None else metrics)


def distance(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).abs().mean()


REFUSED: list[tuple[str, fk.Task, Any, str]] = [
    (
        "(n, 1) and (n,)",
        task(1, functional.mse_loss),
        REAL,
        r"mse_loss .*\(n, 1\) but targets \(n,\): .*None\]",
    ),
    ("(n,) and (n, 1)", task(1, functional.l1_loss, {}, FLAT), REAL[:, None], r"as y\[\.\.\., 0\]"),
    (
        "a module",
        task(1, nn.HuberLoss()),
        REAL,
        r"huber_loss compares each output with the target at the same",
    ),
    ("(n, 2) and (n, 1)", task(2, functional.mse_loss), REAL[:, None], r"make the two shapes the same"),
    ("classes for mse", task(3, functional.mse_loss), LABELS, r"for class numbers .* cross_entropy"),
    (
        "an own loss",
        task(1, distance),
        REAL,
        r"the loss compares every output with every target.*y\[\.\.\., None",
    ),
    (
        "an own metric",
        task(1, lambda o, y: functional.mse_loss(o[:, 0], y), {"mine": distance}),
        REAL,
        r"the metric 'mine' compares every output with every target",
    ),
    ("whole numbers", task(1, functional.mse_loss), [[1], [2]], r"targets are torch.int64: give y.float\(\)"),
    ("floats by default", task(1), REAL, r"cross_entropy .*at least two.*fk.Task.regression\(model\)"),
    ("floats (n, 1) by default", task(1), REAL[:, None], r"fk.Task.regression\(model\)"),
    ("floats by default, no axis", task(1, functional.cross_entropy, {}, FLAT), REAL, r"Task.regression"),
    ("float labels", task(3), [0.0, 1.0, 2.0], r"as whole numbers, y.long\(\)"),
    (
        "no probabilities",
        task(3),
        RNG.normal(size=(4, 3)),
        r"client 0: y\[0\] is no probability of each class",
    ),
    ("one class", task(1), [0, 0, 0], r"at least two; for one logit per sample .*with_logits"),
    ("labels (n, 1)", task(3), [[0], [1], [2]], r"class numbers of shape \(n,\), as y\[:, 0\]"),
    ("one-hot", task(3), np.eye(3, dtype=int), r"y.argmax\(1\) where y is one-hot"),
    (
        "classes last",
        task(12, functional.cross_entropy, {}, nn.Unflatten(1, (4, 3))),
        np.zeros((3, 4), dtype=int),
        r"of shape \(n, 3\), or let the model put its classes on the second axis",
    ),
    ("another padding", task(3), [0, -1, 2], r"label -1, .*the loss leaves out -100, .*ignore_index=-1"),
    ("labels of nll", task(3, functional.nll_loss, {}, nn.LogSoftmax(1)), [0, 3], r"has the label 3"),
    ("nll of logits", task(9, functional.nll_loss), LABELS, r"nll_loss takes logarithms .*LogSoftmax"),
    (
        "binary labels",
        task(1, functional.binary_cross_entropy_with_logits),
        [[1.0], [2.0]],
        r"client 0: y\[1\] is 2: targets of binary_cross_entropy_with_logits must lie between 0 and 1",
    ),
    ("signs", task(1, functional.soft_margin_loss), [[1.0], [0.0]], r"is 0: .* must be -1 or 1"),
    ("no gradient", task(3, fk.accuracy), LABELS, r"the loss has no gradient"),
    ("a loss that fails", task(3, lambda o, y: 1 // 0), LABELS, r"the loss does not take .*division"),
    ("a float loss", task(3, lambda o, y: 1.0), LABELS, r"the loss returns 1.0: it must be a tensor"),
    (
        "accuracy of one logit",
        task(1, functional.binary_cross_entropy_with_logits, {"accuracy": fk.accuracy}),
        [[1.0], [0.0]],
        r"accuracy: outputs of shape \(n, 1\) have no two classes .*binary_accuracy",
    ),
    (
        "accuracy of labels (n, 1)",
        task(3, lambda o, y: functional.cross_entropy(o, y[:, 0]), {"accuracy": fk.accuracy}),
        [[1], [0]],
        r"accuracy: .* targets must have the outputs' shape without the axis of classes, the second: \(n,\)",
    ),
    (
        "mae (n, 1) and (n,)",
        task(1, lambda o, y: functional.mse_loss(o[:, 0], y), {"mae": fk.metrics.mae}),
        REAL,
        r"mae: outputs of shape \(n, 1\) and targets of shape \(n,\): .*y\[:, None\]",
    ),
    (
        "text",
        task(3, metrics={"text": lambda o, y: "good"}),
        LABELS,
        r"'text' returns 'good': it must be one",
    ),
]


@pytest.mark.parametrize(
    ("given", "y", "message"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED]
)
def test_targets_that_a_loss_would_take_for_something_else(given: fk.Task, y: Any, message: str) -> None:
    with pytest.raises(fk.DataError, match=message):
        train(given, federation(y))


SOFT = torch.softmax(torch.from_numpy(RNG.normal(size=(6, 3))), 1)


@pytest.mark.parametrize(
    ("given", "y"),
    [
        (
            task(1, lambda o, y: functional.mse_loss(o[:, 0], y), {"bias": lambda o, y: o.mean() - y.mean()}),
            REAL,
        ),
        (task(1, lambda o, y: distance(o.flatten(), y)), REAL),
        (task(1, lambda o, y: o[..., 0].mean()), REAL),
        (task(3, metrics={"accuracy": fk.accuracy}), SOFT),
        (task(3, partial(functional.cross_entropy, ignore_index=-1)), [0, -1, 2]),
        (task(3), [0, -100, 2]),
        (task(3, functional.multilabel_soft_margin_loss), SOFT.round()),
        (task(1, functional.poisson_nll_loss), [[1], [3]]),
    ],
    ids=[
        "squeezed",
        "flattened",
        "not looked at",
        "class probabilities",
        "named padding",
        "usual padding",
        "several labels",
        "counts",
    ],
)
def test_targets_that_only_look_odd_are_taken(given: fk.Task, y: Any) -> None:
    assert np.isfinite(train(given, federation(y))["loss"])


def test_accuracy_of_class_probabilities_and_of_sequences() -> None:
    output = torch.eye(3)[[0, 1, 2, 2]]
    assert float(fk.accuracy(output, torch.eye(3)[[0, 1, 2, 0]])) == 0.75
    sequence = torch.stack([output, output.flip(0)], 2)
    labels = torch.tensor([[0, 2], [1, 2], [2, 1], [0, 1]])
    assert float(fk.accuracy(sequence, labels)) == 6 / 8
    assert float(fk.metrics.binary_accuracy(torch.tensor([-1.0, 2.0, 3.0]), torch.tensor([0, 1, 0]))) == 2 / 3
