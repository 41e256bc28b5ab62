"""Checks before the first round: does this model take this data?"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from fedkeel.errors import DataError, FedkeelError
from fedkeel.evaluation import check_size, needing_all, value_of
from fedkeel.methods.relaxed import Relaxed
from fedkeel.metrics import is_mean_over_samples, shapes
from fedkeel.oracle import Oracle
from fedkeel.running.target_checks import check_targets
from fedkeel.settings import RunSettings
from fedkeel.task import Task

_TROUBLE = (RuntimeError, IndexError, ValueError, TypeError)


def check(settings: RunSettings, oracle: Oracle) -> None:
    """Run model, loss and metrics on a few samples; refuse what does not fit together."""
    federation, task = settings.federation, settings.task
    x, y = federation.samples(0)
    inputs, target = oracle.to_device((federation.prepare(x[:2]), y[:2]))
    name = type(task.model).__name__
    try:
        with torch.no_grad():
            output = oracle.eval_copy(inputs)
    except _TROUBLE as problem:
        raise DataError(
            f"{name} does not take a batch of shape {tuple(inputs.shape)} and dtype {inputs.dtype}: "
            f"{_first_line(problem)}; change the model's input size or the data's shape"
        ) from None
    if not isinstance(output, Tensor):
        raise DataError(f"{name} returns {type(output).__name__}: its output must be one tensor")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two samples may be too few for a metric; broadcasting is refused
        check_targets(task, federation, output, target)
        _check_loss(task, output, target)
        _check_metrics(settings, oracle, output, target)


def _check_loss(task: Task, output: Tensor, target: Tensor) -> None:
    """The loss must be one number that has a gradient."""
    leaf = output.detach().requires_grad_(output.is_floating_point())
    try:
        loss = task.loss(leaf, target)
    except FedkeelError:
        raise
    except Exception as problem:
        raise _untaken("the loss", output, target, problem) from problem
    if not isinstance(loss, Tensor):
        raise DataError(f"the loss returns {loss!r}: it must be a tensor, of which a gradient can be taken")
    if loss.ndim != 0:
        raise DataError(
            f"the loss has shape {tuple(loss.shape)}: it must be one number, as the mean over samples"
        )
    try:
        gradient = torch.autograd.grad(loss, leaf, allow_unused=True)[0] if loss.requires_grad else None
    except RuntimeError as problem:
        raise _untaken("the gradient of the loss", output, target, problem) from None
    if gradient is None:
        raise DataError(
            "the loss has no gradient with respect to the outputs: compute it from them in torch, without "
            "argmax, rounding or detach"
        )


def _check_metrics(settings: RunSettings, oracle: Oracle, output: Tensor, target: Tensor) -> None:
    """Every metric must be one number; those of all samples may need more than two, and then get all."""
    federation, task = settings.federation, settings.task
    samples = int(federation.offsets[len(federation)]) if federation.test is None else len(federation.test[0])
    if whole := needing_all(task.scores):
        check_size(whole, output.nbytes / len(target), samples)
    for name, metric in task.metrics.items():
        with torch.no_grad():
            try:
                value = value_of(metric, output, target)
            except FedkeelError:
                raise
            except Exception as problem:
                if is_mean_over_samples(metric):
                    raise _untaken(f"the metric {name!r}", output, target, problem) from problem
                _evaluate_all(settings, oracle, name, output, target)
                continue
        try:
            float(value)
        except (TypeError, ValueError, RuntimeError):
            raise DataError(
                f"the metric {name!r} returns {value!r}: it must be one number over all samples; give "
                "several as several metrics"
            ) from None


def _evaluate_all(settings: RunSettings, oracle: Oracle, name: str, output: Tensor, target: Tensor) -> None:
    """Try a metric that two samples are too few for on all that is evaluated."""
    federation = settings.federation
    data = federation.everything if federation.test is None else federation.test
    point, buffers = oracle.point.clone(), oracle.buffers.clone()
    try:
        oracle.evaluate(point, buffers, data, federation.prepare)
    except FedkeelError:
        raise
    except Exception as problem:
        raise _untaken(f"the metric {name!r}", output, target, problem) from problem


def _untaken(thing: str, output: Tensor, target: Tensor, problem: Exception) -> DataError:
    """Return the error for a loss or a metric that does not take outputs and targets."""
    of_output, of_target = shapes(output, target)
    return DataError(
        f"{thing} does not take outputs of shape {of_output} with targets of shape {of_target} and dtype "
        f"{target.dtype}: {_first_line(problem)}; change it, or the shape of outputs or targets"
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
                "bound (watch the column `norm`); a beta below N/C or beta=Adaptive() stops the explosion, "
                "though not all of the growth",
                stacklevel=3,
            )
