"""Checks before the first round: does this model take this data?"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedkeel.errors import DataError
from fedkeel.methods.relaxed import Relaxed
from fedkeel.oracle import Oracle
from fedkeel.settings import RunSettings


def check(settings: RunSettings, oracle: Oracle) -> None:
    """Run the model on a few samples and compare labels with its outputs."""
    federation, task = settings.federation, settings.task
    x, y = federation.samples(0)
    inputs, target = oracle.to_device((federation.prepare(x[:2]), y[:2]))
    name = type(task.model).__name__
    try:
        with torch.no_grad():
            output = oracle.eval_copy(inputs)
    except (RuntimeError, IndexError, ValueError, TypeError) as problem:
        raise DataError(
            f"{name} does not take a batch of shape {tuple(inputs.shape)} and dtype {inputs.dtype}: "
            f"{_first_line(problem)}; change the model's input size or the data's shape"
        ) from None
    if not isinstance(output, Tensor):
        raise DataError(f"{name} returns {type(output).__name__}: its output must be one tensor")
    if task.loss is cross_entropy and not target.is_floating_point():
        _check_labels(settings, output.shape[1] if output.ndim > 1 else 1, name)
    try:
        loss = task.loss(output, target)
        metrics = {key: metric(output, target) for key, metric in task.metrics.items()}
    except (RuntimeError, IndexError, ValueError, TypeError) as problem:
        raise DataError(
            f"the loss or a metric does not take outputs of shape {tuple(output.shape)} with targets of "
            f"shape {tuple(target.shape)} and dtype {target.dtype}: {_first_line(problem)}"
        ) from None
    if loss.ndim != 0:
        raise DataError(
            f"the loss has shape {tuple(loss.shape)}: it must be one number, the mean over samples"
        )
    for key, value in metrics.items():
        if not isinstance(value, float) and torch.as_tensor(value).numel() != 1:
            raise DataError(
                f"the metric {key!r} returns {value!r}: it must be one number, a mean over samples"
            )


def _check_labels(settings: RunSettings, classes: int, model: str) -> None:
    federation = settings.federation
    for owner, labels in (("y", federation.y), ("test", federation.test and federation.test[1])):
        if labels is None or isinstance(labels, tuple):
            continue
        wrong = ((labels < 0) | (labels >= classes)).reshape(len(labels), -1).any(1).nonzero()
        if len(wrong):
            row = int(wrong[0])
            label = labels[row].flatten()[0].item() if labels[row].ndim else labels[row].item()
            raise DataError(
                f"{federation.describe_row(owner, row)} has the label {label}, but {model} has {classes} "
                f"outputs: labels must lie in 0 … {classes - 1}; relabel, or build a model with more classes"
            )


def _first_line(problem: Exception) -> str:
    return str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__


def warn_of_growth(settings: RunSettings) -> None:
    """Warn where relaxed initialisation may let the model grow without bound."""
    rounds_apart = len(settings.federation) / settings.cohort_size
    for method, _ in settings.stages.parts:
        if not (isinstance(method, Relaxed) and method.origin == "model" and isinstance(method.beta, float)):
            continue
        if method.beta * rounds_apart > 1:
            warnings.warn(
                f"relaxed: beta·C/N = {method.beta:g}·{rounds_apart:g} > 1: the model may grow without "
                "bound (watch the column `norm`); beta=Adaptive() stays below N/C, and lower where the "
                "server's moves are noise",
                stacklevel=3,
            )
