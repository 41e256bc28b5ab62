"""Checks before the first round: does this model take this data?"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedkeel.common.errors import ConfigError, DataError, FedkeelError
from fedkeel.core.algorithm import Algorithm, Facts, Plan, Sharp, Walk
from fedkeel.core.evaluation import LOSS, check_size, needing_all, returns_pair, value_of
from fedkeel.core.losses import known_loss
from fedkeel.core.metrics import is_mean_over_samples, shapes
from fedkeel.core.oracle import Oracle
from fedkeel.core.task import Task
from fedkeel.core.work import Work
from fedkeel.data.federation import Federation
from fedkeel.data.samples import Batch
from fedkeel.methods.relaxed import Relaxed
from fedkeel.running.target_checks import check_targets
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.trees import Tree, call, count, each, named, nbytes, part, tensors, with_samples
from fedkeel.tensors.vector import Vector, norm, scalar_like

_TROUBLE = (RuntimeError, IndexError, ValueError, TypeError)


def check(settings: RunSettings, oracle: Oracle) -> None:
    """Run model, loss and metrics on a few samples; refuse what does not fit together."""
    federation, task = settings.federation, settings.task
    x, y = federation.samples(0)
    inputs, target = oracle.to_device((_prepared(federation, part(x, 0, 2)), part(y, 0, 2)))
    name = type(task.module).__name__
    try:
        with torch.no_grad():
            output = call(oracle.eval_copy, inputs)
    except FedkeelError:  # the model's own check says it better
        raise
    except _TROUBLE as problem:
        raise DataError(
            f"{name} does not take a batch of {with_samples(inputs)}: {_first_line(problem)}; change the "
            "model's input size or the data's shape"
        ) from None
    except Exception as problem:  # of the model's own
        raise DataError(
            f"{name} fails on a batch of {with_samples(inputs)} with {type(problem).__name__}: "
            f"{_first_line(problem)}"
        ) from problem
    _check_output(task, output, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two samples may be too few for a metric; broadcasting is refused
        check_targets(task, federation, output, target)
        _check_loss(task, output, target)
        _check_metrics(settings, oracle, output, target)
    if not isinstance(output, Tensor):
        _check_objectives(settings, oracle, (inputs, target), type(output).__name__)


def _prepared(federation: Federation, x: Tree) -> Tree:
    """Return a few inputs as the model gets them; refuse a transform that fails."""
    transform = federation.transform
    if transform is None:
        return x
    try:
        changed = transform(x)
    except FedkeelError:
        raise
    except Exception as problem:
        what = f"{type(problem).__name__}: {_first_line(problem)}"
        raise DataError(f"transform fails on a batch of {with_samples(x)} with {what}") from problem
    if not tensors(changed) or count(changed) != count(x):
        given = with_samples(changed) if tensors(changed) else type(changed).__name__
        raise DataError(
            f"transform gives {given} of a batch of {with_samples(x)}: it must give as many samples "
            "as it gets"
        )
    return changed


def _check_output(task: Task, output: Any, name: str) -> None:
    """Outputs must be tensors; losses and metrics of torch and fedkeel take one."""
    if not tensors(output):
        raise DataError(f"{name} returns {type(output).__name__}: its output must be a tensor, or hold some")
    if isinstance(output, Tensor):
        return
    for key, score in task.scores.items():
        if known_loss(score) is not None or getattr(score, "__module__", "") == "fedkeel.core.metrics":
            thing = "loss" if key == "loss" else f"metrics={{{key!r}: …}}"
            given = _name_of(score)
            raise DataError(
                f"{name} returns {type(output).__name__} with {_parts(output)}, and {given} takes one "
                f"tensor: say which, as in {thing}=lambda output, y: {given}(output{_first_part(output)}, y)"
            )


def _check_objectives(settings: RunSettings, oracle: Oracle, batch: Batch, returned: str) -> None:
    """Refuse methods whose own part of the loss asks for one tensor of outputs."""
    for method, _ in settings.played_stages.parts:
        x = oracle.point.clone()
        plan = method.plan(method.broadcast(method.init(x)), method.init_client(x), Facts.of(1, 1.0, x))
        if plan.objective is None:
            continue
        try:
            with oracle.buffers_kept(), torch.random.fork_rng(devices=[]):
                oracle.gradient(batch, plan.objective)
        except (*_TROUBLE, AttributeError) as problem:
            raise ConfigError(
                f"{method!r} adds to the loss a part of its own that takes one tensor of outputs, and "
                f"{type(settings.task.module).__name__} returns {returned}: let the model return that tensor "
                f"alone, or choose another method ({_first_line(problem)})"
            ) from None


def _parts(output: Any) -> str:
    return ", ".join(name for name, _ in named(output, "output"))


def _first_part(output: Any) -> str:
    if isinstance(output, Mapping):
        key = "logits" if "logits" in output else next(iter(output))
        return f".{key}" if hasattr(output, key) else f"[{key!r}]"
    return "[0]"


def _name_of(score: Any) -> str:
    known = known_loss(score)
    return known.name if known is not None else str(getattr(score, "__name__", type(score).__name__))


def _check_loss(task: Task, output: Tree, target: Tree) -> None:
    """The loss must be one number that has a gradient."""
    leaf = each(lambda one: one.detach().requires_grad_(one.is_floating_point()), output)
    try:
        loss = task.training_loss(leaf, target)
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
        leaves = [one for one in tensors(leaf) if one.requires_grad]
        found = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else []
    except RuntimeError as problem:
        raise _untaken("the gradient of the loss", output, target, problem) from None
    if all(gradient is None for gradient in found):
        raise DataError(
            "the loss has no gradient with respect to the outputs: compute it from them in torch, without "
            "argmax, rounding or detach"
        )


def _check_metrics(settings: RunSettings, oracle: Oracle, output: Tree, target: Tree) -> None:
    """Every metric must be one number; those of all samples may need more than two, and then get all."""
    task, samples = settings.task, _evaluated_samples(settings)
    whole = needing_all(task.scores)
    if LOSS in whole and returns_pair(task.loss, output, target):
        del whole[LOSS]
    if whole:
        check_size(whole, nbytes(output) / count(target), samples)
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
                f"the metric {name!r} returns {_shown(value)}: it must be one number over all samples; give "
                "several as several metrics"
            ) from None


def _evaluated_samples(settings: RunSettings) -> int:
    """Return the number of samples that the model is evaluated on at most."""
    return max((data.size for _, data in settings.evaluation_sets()), default=0)


def _evaluate_all(settings: RunSettings, oracle: Oracle, name: str, output: Tree, target: Tree) -> None:
    """Try a metric that two samples are too few for on all that is evaluated."""
    point, buffers = oracle.point.clone(), oracle.buffers.clone()
    try:
        for _, data in settings.evaluation_sets():
            oracle.evaluate(point, buffers, data, settings.federation.prepare)
    except FedkeelError:
        raise
    except Exception as problem:
        raise _untaken(f"the metric {name!r}", output, target, problem) from problem


def _untaken(thing: str, output: Tree, target: Tree, problem: Exception) -> DataError:
    """Return the error for a loss or a metric that does not take outputs and targets."""
    if isinstance(output, Tensor) and isinstance(target, Tensor):
        of_output, of_target = shapes(output, target)
        given = f"outputs of shape {of_output} with targets of shape {of_target} and dtype {target.dtype}"
    else:
        given = (
            f"outputs ({type(output).__name__}: {with_samples(output)}) with targets ({with_samples(target)})"
        )
    return DataError(
        f"{thing} does not take {given}: {_first_line(problem)}; change it, or the shape of outputs or "
        "targets"
    )


def _shown(value: Any) -> str:
    if isinstance(value, Tensor) and value.numel() > 1:
        return f"a tensor of shape {tuple(value.shape)}"
    return repr(value)


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
    inputs, _ = oracle.to_device((settings.federation.prepare(part(x, 0, 1)), part(y, 0, 1)))
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            call(copy.deepcopy(oracle.module).train(), inputs)
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


def check_rates(settings: RunSettings, oracle: Oracle) -> None:
    """Refuse rates that the model's numbers cannot hold: PyTorch fails on them amid a step."""
    work, dtype = settings.work, oracle.point.dtype
    rates = {"lr": work.lr}
    if work.optimizer is not None:
        rates[f"weight_decay of {type(work.optimizer).__name__}"] = work.optimizer.weight_decay
    for name, rate in rates.items():
        if rate > torch.finfo(dtype).max:
            raise ConfigError(
                f"{name} = {rate:g}: {str(dtype).removeprefix('torch.')} numbers end at "
                f"{torch.finfo(dtype).max:.3g}: give a smaller one"
            )


def check_optimizer(settings: RunSettings, oracle: Oracle) -> None:
    """Refuse methods that ask more of a walk than an adaptive optimiser can tell."""
    if settings.work.optimizer is None:
        return
    optimizer, x = type(settings.work.optimizer).__name__, oracle.point
    for method, _ in settings.played_stages.parts:
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

    down, memory, facts = method.broadcast(method.init(x)), method.init_client(x), Facts.of(1, 1.0, x)
    plan = method.plan(down, memory, facts)
    if plan.momentum is not None:
        return "a momentum of its own in every step"
    dual = plan.sharp.dual if isinstance(plan.sharp, Sharp) else None
    method.finish(Asked(plan.start, plan.start, one, one, None, dual, x), down, memory, facts)
    return asked[0] if asked else None


def _first_plan(method: Algorithm, x: Vector, facts: Facts | None = None) -> Plan:
    """Return what a method plans for a client in the first round; by default for one of mean size."""
    facts = Facts.of(1, 1.0, x) if facts is None else facts
    return method.plan(method.broadcast(method.init(x)), method.init_client(x), facts)


def check_momentum(settings: RunSettings, oracle: Oracle) -> None:
    """Refuse a local momentum beside one that the method keeps itself."""
    if not settings.work.momentum:
        return
    for method, _ in settings.played_stages.parts:
        if _first_plan(method, oracle.point).momentum is not None:
            raise ConfigError(
                f"momentum = {settings.work.momentum:g}: {method!r} has a local momentum of its own, whose "
                "buffer it keeps: leave momentum out of Work and set the method's beta, or choose a method "
                "without one"
            )


def warn_of_dragging(settings: RunSettings, oracle: Oracle) -> None:
    """Warn where clipping leaves pull·y outside and can no longer balance it: the model goes to zero."""
    work, x = settings.work, oracle.point
    if work.clip is None or work.clip_on != "direction":
        return
    federation, size = settings.federation, float(norm(x))
    sizes = [federation.size(client) for client in range(len(federation))]
    facts = Facts.of([min(sizes), max(sizes)], federation.mean_size, x)  # a pull by size is largest at an end
    for method, _ in settings.played_stages.parts:
        pull = float(torch.as_tensor(_first_plan(method, x, facts).pull).max())
        if pull * size > work.clip:
            warnings.warn(
                f"clip_on = 'direction': {method!r} pulls by {pull:g}, and the model has norm {size:.3g}: "
                f"pull·anchor is inside of what clip = {work.clip:g} bounds and pull·y is not, and "
                f"{pull:g}·{size:.3g} = {pull * size:.3g} > {work.clip:g}, so every step drags the model "
                "towards zero (watch the column `norm`); clip_on='corrected' clips the two together, "
                f"clip_on='gradient' clips neither, or give a clip above {pull * size:.3g}",
                stacklevel=3,
            )


def warn_of_growth(settings: RunSettings) -> None:
    """Warn where relaxed initialisation may let the model grow without bound."""
    rounds_apart = len(settings.federation) / settings.cohort_size
    for method, _ in settings.played_stages.parts:
        if not (isinstance(method, Relaxed) and method.origin == "model" and isinstance(method.beta, float)):
            continue
        if method.beta * rounds_apart > 1:
            warnings.warn(
                f"relaxed: beta·C/N = {method.beta:g}·{rounds_apart:g} > 1: the model may grow without "
                "bound (watch the column `norm`); beta=Adaptive() stays below N/C, and lower where the "
                "server's moves are noise",
                stacklevel=3,
            )
