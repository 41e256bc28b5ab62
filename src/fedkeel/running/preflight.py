"""Checks before the first round: does this model take this data?"""

from __future__ import annotations

import copy
import warnings

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from fedkeel.algorithm import Algorithm, Sharp, Walk
from fedkeel.errors import ConfigError, DataError
from fedkeel.methods.relaxed import Relaxed
from fedkeel.oracle import Oracle
from fedkeel.settings import RunSettings
from fedkeel.vector import Vector, scalar_like
from fedkeel.work import Work


def check(settings: RunSettings, oracle: Oracle) -> None:
    """Run the model on a few samples and compare labels with its outputs."""
    federation, task = settings.federation, settings.task
    x, y = federation.samples(0)
    inputs, target = oracle.to_device((federation.prepare(x[:2]), y[:2]))
    name = type(task.module).__name__
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


def check_leftovers(settings: RunSettings, oracle: Oracle) -> None:
    """Refuse minibatches of one sample where the model's BatchNorm would fail on them, rounds later."""
    sizes, work = settings.federation.sizes, settings.work
    single = [samples for samples in sorted(set(sizes.tolist())) if 1 in work.epoch(samples)]
    if not single or not any(isinstance(layer, _BatchNorm) for layer in oracle.module.modules()):
        return
    client = int((sizes == single[0]).nonzero()[0])
    x, y = settings.federation.samples(client)
    inputs, _ = oracle.to_device((settings.federation.prepare(x[:1]), y[:1]))
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            copy.deepcopy(oracle.module).train()(inputs)
    except ValueError:
        raise DataError(_about_leftover(client, single[0], work)) from None


def _about_leftover(client: int, samples: int, work: Work) -> str:
    if samples == 1:
        return (
            f"client {client} has a single sample, on which BatchNorm cannot train: leave such clients out, "
            "or take another normalisation, such as GroupNorm"
        )
    if work.batch_size == 1:
        return "BatchNorm cannot train on minibatches of one sample: give Work a larger batch_size"
    return (
        f"client {client} has {samples} samples: in minibatches of {work.batch_size} one is left over, on "
        "which BatchNorm cannot train: Work(last_batch='drop') leaves it out, 'merge' adds it to the "
        "minibatch before"
    )


def check_optimizer(settings: RunSettings, oracle: Oracle) -> None:
    """Refuse methods that ask more of a walk than an adaptive optimiser can tell."""
    if settings.work.optimizer is None:
        return
    optimizer, x = type(settings.work.optimizer).__name__, oracle.point
    for method, _ in settings.stages.parts:
        asked = _asked_of_walk(method, x)
        if asked is not None:
            raise ConfigError(
                f"optimizer = {optimizer}: {method!r} asks for {asked}, which {optimizer}'s steps do not "
                "have: leave the optimizer out, or choose a method that looks at where a client ends, as "
                "FedAvg, FedProx or FedDyn do"
            )


def _asked_of_walk(method: Algorithm, x: Vector) -> str | None:
    """Return what a method wants to know of a walk besides its ends, None where it is nothing."""
    asked, one = list[str](), scalar_like(x, 1.0)

    class Asked(Walk):
        """A walk that notes whether it is asked for its length."""

        @property
        def length(self) -> Tensor:
            asked.append("the sum of a walk's rates (its length or mean direction)")
            return one

    down, memory = method.broadcast(method.init(x)), method.enlist(x)
    plan = method.plan(down, memory)
    if plan.momentum is not None:
        return "a momentum of its own in every step"
    dual = plan.sharp.dual if isinstance(plan.sharp, Sharp) else None
    method.finish(Asked(plan.start, plan.start, one, one, None, dual, x), down, memory)
    return asked[0] if asked else None


def warn_of_growth(settings: RunSettings) -> None:
    """Warn where relaxed initialisation may let the model grow without bound."""
    rounds_apart = len(settings.federation) / settings.cohort_size
    for method, _ in settings.stages.parts:
        if not (isinstance(method, Relaxed) and method.origin == "model" and isinstance(method.beta, float)):
            continue
        if method.beta * rounds_apart > 1:
            warnings.warn(
                f"relaxed: beta·C/N = {method.beta:g}·{rounds_apart:g} > 1: the model may grow without "
                "bound (watch the column `norm`); a beta below N/C or beta=Adaptive() stops the explosion, "
                "though not all of the growth",
                stacklevel=3,
            )
