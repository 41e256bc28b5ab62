"""How loss and metrics of a model come from its outputs, batch by batch.

Means over samples are summed up. Accumulators take each batch. All else is a function of all outputs: they
are kept on the CPU, within a budget.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedkeel.common.errors import ConfigError
from fedkeel.core.metrics import Accumulator, Function, Metric, is_mean_over_samples
from fedkeel.tensors.trees import Tree, each, join, nbytes, tensors

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
        self._sums: list[dict[str, float]] = []
        self._kept: list[tuple[Tree, Tree]] = []
        self._device = torch.device("cpu")

    def add(self, output: Tree, target: Tree, samples: int) -> None:
        """Take a batch of so many samples."""
        if not self._sums:
            self._begin(output, samples)
        self._sums.append(batch_sums(self._means, output, target, samples))
        for accumulator in self._accumulators.values():
            accumulator.update(output, target)
        if self._whole:
            self._kept.append((each(Tensor.cpu, output), each(Tensor.cpu, target)))

    def result(self) -> dict[str, float]:
        """Return loss and metrics of all that was added."""
        found = mean(self._sums, self._samples)
        found |= {name: float(one.compute()) for name, one in self._accumulators.items()}
        if self._whole:
            whole = (join(parts) for parts in zip(*self._kept, strict=True))
            output, target = (each(lambda tensor: tensor.to(self._device), tree) for tree in whole)
            self._kept.clear()
            found |= {name: float(function(output, target)) for name, function in self._whole.items()}
        return {name: found[name] for name in self._scores}

    def _begin(self, output: Tree, samples: int) -> None:
        self._device = tensors(output)[0].device
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


def fresh(accumulator: Accumulator, device: torch.device) -> Accumulator:
    """Return an accumulator that has taken nothing yet; the user's own is never changed."""
    copied = copy.deepcopy(accumulator)
    copied.reset()
    move = getattr(copied, "to", None)  # torchmetrics' states live on a device
    return copied if move is None else move(device)


def value_of(score: Metric, output: Tree, target: Tree) -> Any:
    """Return a loss or a metric of these outputs and targets alone."""
    if not isinstance(score, Accumulator):
        return score(output, target)
    accumulator = fresh(score, tensors(output)[0].device)
    accumulator.update(output, target)
    return accumulator.compute()


def batch_sums(means: Mapping[str, Function], output: Tree, target: Tree, samples: int) -> dict[str, float]:
    """Return means over samples as sums over a batch."""
    return {name: float(function(output, target)) * samples for name, function in means.items()}


def mean(sums: Sequence[Mapping[str, float]], samples: int) -> dict[str, float]:
    """Return means over samples from the sums of batches, added up in order."""
    totals = dict.fromkeys(sums[0], 0.0)
    for part in sums:
        for name, value in part.items():
            totals[name] += value
    return {name: total / samples for name, total in totals.items()}


def check_size(whole: Mapping[str, Function], bytes_per_sample: float, samples: int) -> None:
    """Raise ConfigError where the outputs of all samples are too many to be kept."""
    size = bytes_per_sample * samples
    if size > OUTPUT_BYTES:
        name = next(iter(whole))
        thing = "the loss" if name == "loss" else f"the metric {name!r}"
        raise ConfigError(
            f"{thing} is computed from the outputs of all {samples:,} samples, {size / 2**30:,.1f} GiB, more "
            f"than {OUTPUT_BYTES / 2**30:g} GiB: if it is a mean over samples, say so with "
            "fk.mean_over_samples(…); else give a metric with update, compute and reset, as torchmetrics has"
        )
