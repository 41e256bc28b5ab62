"""Losses and metrics that are means over something else than samples: real tokens, weighted pairs.

Such a score is either a function that returns (sum, weight), or one of torch's losses of classes, or our
accuracy, which leave targets with a certain label out (padding, -100 by default). Batch by batch its sums and
weights are added up, so that it is the mean over all samples at any size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.nn import functional

from fedkeel.core.losses import PADDING, known_loss

Score = Callable[[Any, Any], Any]
LEAVES_OUT = "leaves_out_padding"  # marks functions with an argument `ignore_index`, -100 by default


def is_pair(found: Any) -> TypeGuard[tuple[Any, Any]]:
    """Tell whether a loss or a metric returned (sum, weight)."""
    return isinstance(found, tuple) and len(found) == 2


def number(found: Any) -> Any:
    """Return what a loss or a metric returned as one number; of (sum, weight) the mean, 0 without weight.

    >>> float(number((torch.tensor(6.0), 4)))
    1.5
    """
    if not is_pair(found):
        return found
    total, weight = torch.as_tensor(found[0]), torch.as_tensor(found[1])
    weight = weight.to(total)
    return total / torch.where(weight > 0, weight, torch.ones_like(weight))


def ignored_label(score: Any) -> int | None:
    """Return the class number of targets that a score leaves out of its mean; None where there is none."""
    known = known_loss(score)
    if known is not None:
        return known.padding
    if (own := getattr(score, "ignore_index", None)) is not None:  # of a typed task
        return int(own)
    inner = score.func if isinstance(score, partial) else score
    if not getattr(inner, LEAVES_OUT, False):
        return None
    return score.keywords.get("ignore_index", PADDING) if isinstance(score, partial) else PADDING


def holds_padding(score: Any, target: Any) -> bool:
    """Tell whether some of these targets are left out of a score's mean."""
    label = ignored_label(score)
    return label is not None and _are_classes(target) and bool((target == label).any())


def sum_and_weight(score: Score, output: Any, target: Any, samples: int) -> tuple[float, float]:
    """Return a batch's part of a mean: samples, or what of their targets is no padding, are its weight."""
    found, label, share = score(output, target), ignored_label(score), 1.0
    if is_pair(found):
        return float(found[0]), float(found[1])
    if label is not None and _are_classes(target):
        share = float((target != label).double().mean())
    return (float(found) * (samples * share), samples * share) if share else (0.0, 0.0)


def sample_terms(loss: Score, output: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Return the loss of a sample, a batch of one, as (sum, weight) with gradients; vmap can map it."""
    known = known_loss(loss)
    if known is None or known.padding is None or not _are_classes(target):
        found = loss(output, target)
        if is_pair(found):
            return found[0], torch.as_tensor(found[1]).to(found[0])
        return found, torch.ones_like(found)
    options = {**known.options, "reduction": "sum"}  # a mean over no target has no gradient
    return getattr(functional, known.name)(output, target, **options), (target != known.padding).sum().to(
        output
    )


def _are_classes(target: Any) -> bool:
    return isinstance(target, Tensor) and not target.is_floating_point()
