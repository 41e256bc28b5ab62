"""Checks before the first round: does this model take this data?"""

from __future__ import annotations

import copy
import warnings

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedkeel.algorithm import Algorithm, Sharp, Walk
from fedkeel.errors import ConfigError, DataError, FedkeelError
from fedkeel.evaluation import check_size, needing_all, value_of
from fedkeel.methods.relaxed import Relaxed
from fedkeel.metrics import is_mean_over_samples, shapes
from fedkeel.oracle import Oracle
from fedkeel.running.target_checks import check_targets
from fedkeel.settings import RunSettings
from fedkeel.task import Task
from fedkeel.vector import Vector, scalar_like
from fedkeel.work import Work

_TROUBLE = (RuntimeError, IndexError, ValueError, TypeError)


def check(settings: RunSettings, oracle: Oracle) -> None:
    """Run model, loss and metrics on a few samples; refuse what does not fit together."""
    federation, task = settings.federation, settings.task
    x, y = federation.samples(0)
    inputs, target = oracle.to_device((federation.prepare(x[:2]), y[:2]))
    name = type(task.module).__name__
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
    task, samples = settings.task, _evaluated_samples(settings)
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


def _evaluated_samples(settings: RunSettings) -> int:
    """Return the number of samples that the model is evaluated on at most, without gathering them."""
    federation = settings.federation
    samples = 0 if federation.validation is None else len(federation.validation.first(len(federation)))
    if settings.evaluated_on == "test" and federation.test is not None:
        return max(samples, len(federation.test[0]))
    return max(samples, int(federation.sizes.sum())) if settings.evaluated_on == "clients" else samples


def _evaluate_all(settings: RunSettings, oracle: Oracle, name: str, output: Tensor, target: Tensor) -> None:
    """Try a metric that two samples are too few for on all that is evaluated."""
    point, buffers = oracle.point.clone(), oracle.buffers.clone()
    try:
        for _, data in settings.evaluation_sets():
            oracle.evaluate(point, buffers, data, settings.federation.prepare)
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
                "bound (watch the column `norm`); beta=Adaptive() stays below N/C, and lower where the "
                "server's moves are noise",
                stacklevel=3,
            )
