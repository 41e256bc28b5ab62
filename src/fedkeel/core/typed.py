"""Losses and metrics of typed tasks: `fk.Task.binary`, `multilabel`, `tagging`, `language_model`.

A user of a typed task need not know which shapes a loss of torch takes: one logit per sample may be (n,) or
(n, 1), labels may be whole numbers or booleans, a model of sequences may give classes first or last, and a
Transformer may return its logits in a dict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fedkeel.common.errors import DataError
from fedkeel.common.frozen import Fraction, Positive, frozen
from fedkeel.core.losses import PADDING
from fedkeel.core.metrics import mean_over_samples

_MOST = 700.0  # the largest exponent of a float64


def logits_of(output: Any) -> Tensor:
    """Return a model's logits: its output, or the part of it that is called so."""
    found = output.get("logits") if isinstance(output, Mapping) else output
    if not isinstance(found, Tensor):
        raise DataError(
            f"the model returns {type(output).__name__}: a typed task takes a tensor of logits, or a mapping "
            "with 'logits'; else give fk.Task a loss of your own"
        )
    return found


def paired(output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and labels 0 or 1 in one shape, (n, 1) and (n,) brought together."""
    logits = logits_of(output)
    if logits.shape == (*target.shape, 1):
        logits = logits.squeeze(-1)
    elif target.shape == (*logits.shape, 1):
        target = target.squeeze(-1)
    if logits.shape != target.shape:
        raise DataError(
            f"logits have shape {tuple(logits.shape)} and labels {tuple(target.shape)}: give a label, 0 or "
            "1, for each logit; for class numbers take fk.Task.multiclass"
        )
    return logits, target.to(logits.dtype)


def by_token(output: Any, target: Tensor, classes_last: bool | None) -> Tensor:
    """Return logits (n, classes, …) for targets (n, …), wherever the model has its classes."""
    logits = logits_of(output)
    first = logits.shape[:1] + logits.shape[2:] == target.shape
    last = logits.shape[:-1] == target.shape
    if first and last and logits.ndim > 2 and classes_last is None:
        raise DataError(
            f"outputs of shape {tuple(logits.shape)} have as many classes as tokens: say where the classes "
            "are, classes_last=True for (n, tokens, classes), else classes_last=False"
        )
    if not (last if classes_last else first or last):
        raise DataError(
            f"outputs have shape {tuple(logits.shape)} and targets {tuple(target.shape)}: give outputs "
            "(n, classes, tokens) or (n, tokens, classes) and a class number for each token"
        )
    takes_last = last if classes_last is None and not first else bool(classes_last)
    return logits.movedim(-1, 1) if takes_last else logits


@frozen
class LogitLoss:
    """Binary cross-entropy of logits; `pos_weight` is how much more a positive label counts."""

    pos_weight: Positive | None = None
    is_mean_over_samples: ClassVar = True

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        """Return its mean."""
        logits, labels = paired(output, target)
        weight = None if self.pos_weight is None else torch.as_tensor(self.pos_weight).to(logits)
        return binary_cross_entropy_with_logits(logits, labels, pos_weight=weight)

    def wrong(self, target: Tensor, output: Tensor) -> Tensor:
        """Return which targets it does not take."""
        return ~((target == 0) | (target == 1))

    @property
    def asks(self) -> str:
        """What targets must be."""
        return "labels must be 0 or 1"


@frozen
class TokenLoss:
    """Cross-entropy over tokens that are no padding, as (sum, number of tokens).

    `classes_last` says where the model has its classes; by default it is seen from the shapes.
    """

    ignore_index: int = PADDING
    classes_last: bool | None = None
    label_smoothing: Fraction = 0.0
    is_mean_over_samples: ClassVar = True

    def __call__(self, output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return its sum, and how many tokens it is of."""
        total = cross_entropy(
            by_token(output, target, self.classes_last),
            target,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction="sum",
        )
        return total, (target != self.ignore_index).sum()

    def wrong(self, target: Tensor, output: Tensor) -> Tensor:
        """Return which targets it does not take."""
        classes = by_token(output, target[: len(output)], self.classes_last).shape[1]
        return ((target < 0) | (target >= classes)) & (target != self.ignore_index)

    @property
    def asks(self) -> str:
        """What targets must be."""
        return f"a token's class must have an output, or be {self.ignore_index}, which is padding"


@frozen
class TokenAccuracy:
    """The share of right tokens, or of right classes, without padding, as (right, number of tokens)."""

    ignore_index: int = PADDING
    classes_last: bool | None = None
    is_mean_over_samples: ClassVar = True

    def __call__(self, output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many are right, and of how many."""
        real = target != self.ignore_index
        right = by_token(output, target, self.classes_last).argmax(1) == target
        return (right & real).sum().double(), real.sum()


class Perplexity:
    """exp of the mean loss of a token, over all tokens that are no padding."""

    def __init__(self, ignore_index: int = PADDING, classes_last: bool | None = None) -> None:
        self._loss = TokenLoss(ignore_index, classes_last)
        self.reset()

    def update(self, output: Any, target: Tensor) -> None:
        """Take a batch."""
        total, tokens = self._loss(output, target)
        self._total += float(total)
        self._tokens += int(tokens)

    def compute(self) -> float:
        """Return the perplexity; NaN where there was no token."""
        return math.exp(min(self._total / self._tokens, _MOST)) if self._tokens else math.nan

    def reset(self) -> None:
        """Forget all."""
        self._total, self._tokens = 0.0, 0


@mean_over_samples
def right_labels(output: Any, target: Tensor) -> Tensor:
    """Return the share of labels 0 or 1 that agree with the sign of their logit."""
    logits, labels = paired(output, target)
    return ((logits > 0) == (labels > 0.5)).double().mean()


@mean_over_samples
def all_labels_right(output: Any, target: Tensor) -> Tensor:
    """Return the share of samples of which all labels are right."""
    logits, labels = paired(output, target)
    return ((logits > 0) == (labels > 0.5)).flatten(1).all(1).double().mean()


def auroc(output: Any, target: Tensor) -> Tensor:
    """Return the area under the ROC curve over all samples; of several labels the mean of those with 0 and 1.

    It is the chance that a positive sample has a larger logit than a negative one, ties counting half.
    """
    logits, labels = (one.double().reshape(len(one), -1) for one in paired(output, target))
    areas = [_area(column, label > 0.5) for column, label in zip(logits.T, labels.T, strict=True)]
    known = [area for area in areas if not math.isnan(area)]
    return torch.tensor(sum(known) / len(known) if known else math.nan, dtype=torch.float64)


def _area(logits: Tensor, positive: Tensor) -> float:
    values, place, counts = torch.unique(logits, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts.double() - 1) / 2)[place]  # equal logits share their mean rank
    ones = int(positive.sum())
    zeros = len(logits) - ones
    if not ones or not zeros or not bool(torch.isfinite(values).all()):
        return math.nan
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


class F1:
    """F1 = 2·tp/(2·tp + fp + fn) over all samples, its mean over classes that occur or are found.

    For logits of labels (`labels=True`) a positive logit is a label that is found, and the mean is over
    labels; of a single label it is that of the positive class.
    """

    def __init__(
        self, *, labels: bool = False, ignore_index: int = PADDING, classes_last: bool | None = None
    ) -> None:
        self._labels, self._ignored, self._last = labels, ignore_index, classes_last
        self._counts: Tensor | None = None

    def update(self, output: Any, target: Tensor) -> None:
        """Take a batch."""
        if self._labels:
            logits, truth = (one.reshape(len(one), -1) for one in paired(output, target))
            found, real = (logits > 0).double(), (truth > 0.5).double()
            self._add((found * real).sum(0), found.sum(0), real.sum(0))
            return
        outputs = by_token(output, target, self._last)
        kept = target != self._ignored
        found, real, classes = outputs.argmax(1)[kept], target[kept], outputs.shape[1]
        self._add(
            *(torch.bincount(one, minlength=classes).double() for one in (real[found == real], found, real))
        )

    def _add(self, *counts: Tensor) -> None:
        made = torch.stack([one.cpu() for one in counts])
        self._counts = made if self._counts is None else self._counts + made

    def compute(self) -> float:
        """Return the mean; NaN where nothing occurs and nothing is found."""
        if self._counts is None:
            return math.nan
        right, found, real = self._counts
        there = found + real > 0
        return float((2 * right / (found + real))[there].mean()) if bool(there.any()) else math.nan

    def reset(self) -> None:
        """Forget all."""
        self._counts = None


TYPED = (LogitLoss, TokenLoss)
