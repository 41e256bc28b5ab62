"""Do these targets suit this loss? Shapes that would broadcast, dtypes and values that train to nonsense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import torch
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.core.evaluation import value_of
from fedkeel.core.losses import ELEMENTWISE, OF_CLASSES, KnownLoss, known_loss
from fedkeel.core.metrics import Metric, shapes
from fedkeel.core.task import Task
from fedkeel.core.typed import TYPED, LogitLoss, TokenLoss, logits_of
from fedkeel.data.federation import Federation
from fedkeel.data.samples import InMemory
from fedkeel.tensors.trees import Tree, named

_REGRESSION = "for real numbers as targets take fk.Task.regression(model)"
_LOG_PROBABILITIES = ("nll_loss", "kl_div")
_PAIRS = 8


def check_targets(task: Task, federation: Federation, output: Tree, target: Tree) -> None:
    """Refuse targets that a known loss, or any loss or metric, would silently take for something else.

    Of several outputs or targets only the loss knows which belong together.
    """
    known = known_loss(task.loss)
    if isinstance(task.loss, TYPED) and isinstance(target, Tensor):
        _check_typed(task.loss, federation, output)
        return
    if not isinstance(target, Tensor) and known is not None:
        parts = ", ".join(name for name, _ in named(target, "y"))
        raise DataError(
            f"{known.name} takes one tensor of targets, but there are {parts}: give a loss that says which, "
            f"as in loss=lambda output, y: {known.name}(output, {parts.split(', ')[0]})"
        )
    if not isinstance(target, Tensor) or not isinstance(output, Tensor):
        return
    if known is not None and known.name in OF_CLASSES:
        _check_classes(known, federation, output, target, type(task.module).__name__)
    elif known is not None and known.name in ELEMENTWISE:
        _check_elements(known, federation, output, target)
    if known is not None and known.name in _LOG_PROBABILITIES and bool((output > 1e-4).any()):
        raise DataError(
            f"{known.name} takes logarithms of probabilities, which are never positive, but an output is "
            f"{float(output.max()):.3g}: let the model end in nn.LogSoftmax(1), or take cross_entropy"
        )
    for name, score in task.scores.items():
        if _pairs_everything(score, output, target):
            thing = "the loss" if name == "loss" else f"the metric {name!r}"
            _refuse_shapes(f"{thing} compares every output with every target", output, target)


def _check_typed(loss: LogitLoss | TokenLoss, federation: Federation, output: Tree) -> None:
    """A typed task's loss says itself which targets it takes."""
    for owner, y in _targets(federation):
        if isinstance(loss, TokenLoss) and y.is_floating_point():
            raise DataError(f"{owner} is {y.dtype}: class numbers must be whole numbers: give y.long()")
        _refuse_values(federation, owner, y, loss.wrong(y, logits_of(output)), loss.asks)


def _check_classes(
    known: KnownLoss, federation: Federation, output: Tensor, target: Tensor, model: str
) -> None:
    """Class numbers (n, …) for outputs (n, classes, …), or class probabilities for cross_entropy."""
    of_output, of_target = shapes(output, target)
    given = f"outputs of shape {of_output} and {target.dtype} targets of shape {of_target}"
    if output.ndim < 2 or output.shape[1] < 2:
        raise DataError(
            f"{known.name} chooses between the classes of the second axis, but {model} gives {given}: let "
            "it have one output per class, at least two; for one logit per sample take the loss "
            f"binary_cross_entropy_with_logits; {_REGRESSION}"
        )
    if target.is_floating_point():
        if known.name != "cross_entropy" or target.shape != output.shape:
            raise DataError(
                f"{known.name} has {given}: give class numbers as whole numbers, y.long(); {_REGRESSION}"
            )
        _check_probabilities(federation)
        return
    if target.shape != output.shape[:1] + output.shape[2:]:
        fix = f"give class numbers of shape {shapes(output[:, 0], output)[0]}"
        if target.shape == output.shape:
            fix += ": y.argmax(1) where y is one-hot; for several labels of a sample take fk.Task.multilabel"
        elif target.shape == (*output.shape[:1], 1):
            fix += ", as y[:, 0]"
        elif target.ndim > 1:
            fix += ", or let the model put its classes on the second axis, as output.transpose(1, 2) does"
        raise DataError(f"{known.name} has {given}: {fix}")
    _check_labels(federation, output.shape[1], model, known.padding)


def _check_labels(federation: Federation, classes: int, model: str, padding: int | None) -> None:
    if not isinstance(federation.pool, InMemory) and not federation.classes:
        raise DataError(
            "the samples are loaded when needed, so their labels cannot be checked beforehand: say how many "
            "classes there are, as in fk.Federation.from_clients(…, classes=10)"
        )
    if not isinstance(federation.pool, InMemory) and (federation.classes or 0) > classes:
        raise DataError(
            f"there are {federation.classes} classes, but {model} has {classes} outputs: build a model with "
            "more classes"
        )
    for owner, labels in _targets(federation):
        wrong = (labels < 0) | (labels >= classes)
        if padding is not None:
            wrong &= labels != padding
        rows = wrong.reshape(len(labels), -1).any(1).nonzero()
        if len(rows):
            row = int(rows[0])
            label = int(labels[row].flatten()[wrong[row].flatten()][0])
            fix = "relabel, or build a model with more classes"
            if label < 0 and padding is not None:
                fix += f"; the loss leaves out {padding}, as padding: another label by ignore_index={label}"
            raise DataError(
                f"{federation.describe_row(owner, row)} has the label {label}, but {model} has {classes} "
                f"outputs: labels must lie in 0 … {classes - 1}; {fix}"
            )


def _check_probabilities(federation: Federation) -> None:
    for owner, y in _targets(federation):
        wrong = (y < 0) | ((y.float().sum(1, keepdim=True) - 1).abs() > 1e-2)
        rows = wrong.reshape(len(y), -1).any(1).nonzero()
        if len(rows):
            raise DataError(
                f"{federation.describe_row(owner, int(rows[0]))} is no probability of each class: with "
                "cross_entropy real numbers as targets must be at least 0 and add up to 1 over the classes; "
                f"{_REGRESSION}"
            )


def _check_elements(known: KnownLoss, federation: Federation, output: Tensor, target: Tensor) -> None:
    """A target for each output, at the same place."""
    if output.shape != target.shape:
        _refuse_shapes(f"{known.name} compares each output with the target at the same place", output, target)
    if not target.is_floating_point() and known.name != "poisson_nll_loss":
        raise DataError(
            f"{known.name} compares real numbers, but the targets are {target.dtype}: give y.float()"
        )
    if known.name.startswith("binary_cross_entropy"):
        _check_values(known.name, federation, lambda y: (y >= 0) & (y <= 1), "must lie between 0 and 1")
    if known.name == "soft_margin_loss":
        _check_values(
            known.name, federation, lambda y: y.abs() == 1, "must be -1 or 1: give 2 * y - 1 for 0 or 1"
        )


def _check_values(name: str, federation: Federation, good: Callable[[Tensor], Tensor], told: str) -> None:
    for owner, y in _targets(federation):
        _refuse_values(federation, owner, y, ~good(y), f"targets of {name} {told}")


def _refuse_values(federation: Federation, owner: str, y: Tensor, wrong: Tensor, told: str) -> None:
    rows = wrong.reshape(len(y), -1).any(1).nonzero()
    if len(rows):
        row = int(rows[0])
        value = float(y[row].flatten()[wrong[row].flatten()][0])
        raise DataError(f"{federation.describe_row(owner, row)} is {value:g}: {told}")


def _targets(federation: Federation) -> Iterator[tuple[str, Tensor]]:
    yield "y", federation.pool.sample().y
    if federation.test is not None:
        yield "test y", federation.test.sample().y


def _refuse_shapes(told: str, output: Tensor, target: Tensor) -> NoReturn:
    of_output, of_target = shapes(output, target)
    fix = "make the two shapes the same"
    if output.shape == (*target.shape, 1):
        fix = f"give targets of shape {of_output}, as y[..., None], or let the model end in nn.Flatten(0)"
    elif target.shape == (*output.shape, 1):
        fix = f"give targets of shape {of_output}, as y[..., 0]"
    elif not target.is_floating_point() and target.ndim == output.ndim - 1:
        fix += "; for class numbers as targets take the loss cross_entropy"
    raise DataError(f"{told}, and outputs have shape {of_output} but targets {of_target}: {fix}")


def _pairs_everything(score: Metric, output: Tensor, target: Tensor) -> bool:
    """Tell whether outputs (n, 1) and targets (n,), or the reverse, are broadcast to (n, n).

    Then targets matter, but not which of them belongs to which output, and the value is another than for two
    shapes that are alike.
    """
    count = len(output)
    if {tuple(output.shape), tuple(target.shape)} != {(count, 1), (count,)}:
        return False
    outputs = torch.linspace(0.1, 0.9, _PAIRS).to(output)
    targets = torch.arange(_PAIRS).remainder(2).to(target)
    as_given = outputs.reshape(-1, *output.shape[1:]), targets.reshape(-1, *target.shape[1:])
    try:
        value = float(value_of(score, *as_given))
        shifted = float(value_of(score, as_given[0], as_given[1].roll(1, 0)))
        other = float(value_of(score, as_given[0], as_given[1] + 1))
        alike = float(value_of(score, outputs, targets))
    except Exception:  # it does not take these: it is tried on real ones next
        return False
    return abs(value - shifted) < 1e-6 < min(abs(value - alike), abs(value - other))
