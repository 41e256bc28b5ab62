"""Metrics: functions of a model's outputs and the targets, or objects that take them batch by batch.

What is not known to be a mean over samples sees all outputs at once. Our own check shapes themselves, so that
nothing is broadcast: (n, 1) outputs against (n,) targets would compare every sample with every other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import torch
from torch import Tensor

from fedkeel.common.errors import ConfigError, DataError
from fedkeel.core.losses import PADDING, known_loss
from fedkeel.core.weighted import LEAVES_OUT

# of what the model returns, and the targets: a mean, or (sum, weight)
Loss: TypeAlias = Callable[[Any, Any], Any]
Function: TypeAlias = Callable[[Any, Any], Any]
F = TypeVar("F", bound=Callable[..., Any])

_MARK = "is_mean_over_samples"


@runtime_checkable
class Accumulator(Protocol):
    """A metric that takes outputs and targets batch by batch: the protocol of torchmetrics and torcheval."""

    def update(self, output: Tensor, target: Tensor, /) -> Any:
        """Take the outputs and targets of a batch."""

    def compute(self) -> Any:
        """Return the metric of all that was taken, as one number."""

    def reset(self) -> Any:
        """Forget all that was taken."""


Metric: TypeAlias = Function | Accumulator


def mean_over_samples(function: F) -> F:
    """Say that a loss or a metric is the mean of a value of each sample; usable as a decorator.

    Models are then evaluated batch by batch: no outputs are kept, and worker processes share the batches.
    Without it a function of one's own sees the outputs of all samples at once, which is right for any. A mean
    over something else, as real tokens, returns (sum, weight) instead: it is summed batch by batch too.
    """
    if not callable(function) or isinstance(function, type | Accumulator):
        raise ConfigError(f"mean_over_samples: {function!r} is not a function of (output, target)")
    try:
        setattr(function, _MARK, True)
    except (AttributeError, TypeError):
        raise ConfigError(
            f"mean_over_samples: {function!r} cannot be marked: wrap it, as in "
            "mean_over_samples(lambda output, target: …)"
        ) from None
    return function


def is_mean_over_samples(score: Metric) -> bool:
    """Tell whether a loss or a metric is known to be a mean over samples: marked, or torch's own."""
    if isinstance(score, Accumulator):
        return False
    inner = score.func if isinstance(score, partial) else score
    if getattr(inner, _MARK, False) is True:
        return True
    known = known_loss(score)
    return known is not None and known.is_mean_over_samples


@mean_over_samples
def accuracy(output: Tensor, target: Tensor, ignore_index: int = PADDING) -> Tensor:
    """Return the share of targets whose class has the largest output; padding does not count.

    Outputs are (n, classes), or (n, classes, …) with a class at each further place; targets are class numbers
    (n, …), or class probabilities of the outputs' shape. Class numbers that are `ignore_index` are padding.
    """
    if output.ndim > 1 and target.is_floating_point() and target.shape == output.shape:
        target = target.argmax(1)
    of_output, of_target = shapes(output, target)
    if output.ndim < 2 or output.shape[1] < 2:
        raise DataError(
            f"accuracy: outputs of shape {of_output} have no two classes to choose from: for one logit per "
            "sample take fk.metrics.binary_accuracy, for a regression fk.Task.regression(model)"
        )
    if target.shape != output.shape[:1] + output.shape[2:]:
        raise DataError(
            f"accuracy: outputs of shape {of_output} and targets of shape {of_target}: targets must have the "
            f"outputs' shape without the axis of classes, the second: {shapes(output[:, 0], output)[0]}"
        )
    real = torch.ne(target, ignore_index)
    return ((output.argmax(1) == target) & real).sum().double() / real.sum()


setattr(accuracy, LEAVES_OUT, True)


@mean_over_samples
def binary_accuracy(output: Tensor, target: Tensor) -> Tensor:
    """Return the share of targets, 0 or 1, that agree with the sign of their logit."""
    _check_alike("binary_accuracy", output, target)
    return ((output > 0) == (target > 0.5)).double().mean()


@mean_over_samples
def mse(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared error."""
    _check_alike("mse", output, target)
    return (output.double() - target).square().mean()


@mean_over_samples
def mae(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean absolute error."""
    _check_alike("mae", output, target)
    return (output.double() - target).abs().mean()


def r2(output: Tensor, target: Tensor) -> Tensor:
    """Return R² = 1 − Σ(y − ŷ)²/Σ(y − ȳ)² over all samples, its mean over outputs; NaN for constant ones."""
    _check_alike("r2", output, target)
    y = target.double().reshape(len(target), -1)
    left = (y - output.double().reshape(y.shape)).square().sum(0)
    spread = (y - y.mean(0)).square().sum(0)
    return (1 - left / spread.where(spread > 0, float("nan"))).mean()


def _check_alike(name: str, output: Tensor, target: Tensor) -> None:
    if output.shape != target.shape:
        of_output, of_target = shapes(output, target)
        raise DataError(
            f"{name}: outputs of shape {of_output} and targets of shape {of_target}: give targets of the "
            "outputs' shape, as y[:, None] for one output per sample"
        )


def shapes(output: Tensor, target: Tensor) -> tuple[str, str]:
    """Return two shapes in words, the number of samples as n where both begin with it."""
    both = tuple(output.shape), tuple(target.shape)
    if output.ndim and target.ndim and len(output) == len(target):
        return _with_n(both[0]), _with_n(both[1])
    return str(both[0]), str(both[1])


def _with_n(shape: tuple[int, ...]) -> str:
    return f"(n{''.join(f', {size}' for size in shape[1:]) or ','})"
