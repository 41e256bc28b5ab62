"""How loss and metrics of a model come from its outputs, batch by batch.

Means over samples, and what returns (sum, weight), are summed up. Accumulators take each batch. All else is a
function of all outputs: they are kept on the CPU, within a budget.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedkeel.common.errors import ConfigError
from fedkeel.core.metrics import Accumulator, Function, Metric, is_mean_over_samples
from fedkeel.core.weighted import is_pair, number, sum_and_weight
from fedkeel.tensors.trees import Tree, each, join, nbytes, tensors

Sums: TypeAlias = dict[str, tuple[float, float]]  # of a batch, by name: sum and weight
LOSS = "loss"
OUTPUT_BYTES = 2**30  # that outputs may take where a loss or a metric needs all of them


class EvaluationTotals:
    """The evaluation of one model: `add` each batch, then ask for the `result`."""

    def __init__(self, scores: Mapping[str, Metric], samples: int) -> None:
        self._scores, self._samples = scores, samples
        self._whole = needing_all(scores)
        self._given = {name: score for name, score in scores.items() if isinstance(score, Accumulator)}
        self._accumulators: dict[str, Accumulator] = {}
        others = {*self._whole, *self._given}
        self._means: Mapping[str, Any] = {name: one for name, one in scores.items() if name not in others}
        self._sums: list[Sums] = []
        self._kept: list[tuple[Tree, Tree]] = []
        self._device = torch.device("cpu")

    def add(self, output: Tree, target: Tree, samples: int) -> None:
        """Take a batch of so many samples."""
        if not self._sums:
            self._begin(output, target, samples)
        self._sums.append(batch_sums(self._means, output, target, samples))
        for accumulator in self._accumulators.values():
            accumulator.update(output, target)
        if self._whole:
            self._kept.append((each(Tensor.cpu, output), each(Tensor.cpu, target)))

    def result(self) -> dict[str, float]:
        """Return loss and metrics of all that was added."""
        found = mean(self._sums)
        found |= {name: float(one.compute()) for name, one in self._accumulators.items()}
        if self._whole:
            whole = (join(parts) for parts in zip(*self._kept, strict=True))
            output, target = (each(lambda tensor: tensor.to(self._device), tree) for tree in whole)
            self._kept.clear()
            found |= {name: float(function(output, target)) for name, function in self._whole.items()}
        return {name: found[name] for name in self._scores}

    def _begin(self, output: Tree, target: Tree, samples: int) -> None:
        self._device = tensors(output)[0].device
        if LOSS in self._whole and returns_pair(self._whole[LOSS], output, target):
            self._means = {LOSS: self._whole.pop(LOSS), **self._means}
        if self._whole:
            check_size(self._whole, nbytes(output) / samples, self._samples)
        self._accumulators = {name: fresh(one, self._device) for name, one in self._given.items()}


def needing_all(scores: Mapping[str, Metric]) -> dict[str, Function]:
    """Return the losses and metrics that are computed from all outputs at once."""
    return {
        name: score
        for name, score in scores.items()
        if not isinstance(score, Accumulator) and not is_mean_over_samples(score)
    }


def returns_pair(loss: Function, output: Tree, target: Tree) -> bool:
    """Tell whether a loss of the user's returns (sum, weight) of a batch: then it needs no other one."""
    try:
        return is_pair(loss(output, target))
    except Exception:  # a batch may be too small for a loss of all samples
        return False


def fresh(accumulator: Accumulator, device: torch.device) -> Accumulator:
    """Return an accumulator that has taken nothing yet; the user's own is never changed."""
    copied = copy.deepcopy(accumulator)
    copied.reset()
    move = getattr(copied, "to", None)  # torchmetrics' states live on a device
    return copied if move is None else move(device)


def value_of(score: Metric, output: Tree, target: Tree) -> Any:
    """Return a loss or a metric of these outputs and targets alone."""
    if not isinstance(score, Accumulator):
        found = score(output, target)
        return number(found) if is_mean_over_samples(score) else found
    accumulator = fresh(score, tensors(output)[0].device)
    accumulator.update(output, target)
    return accumulator.compute()


def batch_sums(means: Mapping[str, Function], output: Tree, target: Tree, samples: int) -> Sums:
    """Return means as sums over a batch, each with its weight."""
    return {name: sum_and_weight(function, output, target, samples) for name, function in means.items()}


def mean(sums: Sequence[Sums]) -> dict[str, float]:
    """Return means from the sums of batches, added up in order; NaN where nothing had weight."""
    totals = dict.fromkeys(sums[0], (0.0, 0.0))
    for part in sums:
        for name, (value, weight) in part.items():
            total, whole = totals[name]
            totals[name] = (total + value, whole + weight)
    return {name: total / weight if weight else math.nan for name, (total, weight) in totals.items()}


def check_size(whole: Mapping[str, Function], bytes_per_sample: float, samples: int) -> None:
    """Raise ConfigError where the outputs of all samples are too many to be kept."""
    size = bytes_per_sample * samples
    if size > OUTPUT_BYTES:
        name = next(iter(whole))
        thing = "the loss" if name == "loss" else f"the metric {name!r}"
        raise ConfigError(
            f"{thing} is computed from the outputs of all {samples:,} samples, {size / 2**30:,.1f} GiB, more "
            f"than {OUTPUT_BYTES / 2**30:g} GiB: if it is a mean over samples, say so with "
            "fk.mean_over_samples(…); if it is a mean over something else, as tokens, return (sum, weight); "
            "else give a metric with update, compute and reset, as torchmetrics has"
        )
