"""A task: a model, its loss, and the metrics that are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fedkeel.common.columns import VALIDATION, reserved_names
from fedkeel.common.errors import ConfigError, FedkeelError
from fedkeel.common.identity import stable_name
from fedkeel.common.summary import as_html, as_text
from fedkeel.core.losses import PADDING, known_loss
from fedkeel.core.metrics import Accumulator, Loss, Metric, accuracy, is_mean_over_samples, mae, mse, r2
from fedkeel.core.weighted import number
from fedkeel.tensors.layout import trainable
from fedkeel.tensors.streams import Stream

Made = TypeVar("Made")

_USUAL: Mapping[str, Metric] = {"accuracy": accuracy}


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained: any `nn.Module`, a loss and metrics of (output, target).

    The loss is a mean over a minibatch; of one that returns (sum, weight), as over real tokens, it is the
    quotient.
    By default the metric is the accuracy, without the targets that the loss ignores (`ignore_index`).

    The model may also be a function or class that makes one, as in `Task(Net)` or `Task(lambda: Net(10))`: it
    is called once per run, and what it draws comes from the run's seed. A module is never changed: training
    works on copies, and its weights are those of the first round whatever the seed. A loss or a metric that
    is not known to be a mean over samples (`fk.mean_over_samples`) is evaluated over all outputs at once; a
    metric may also be an object with `update`, `compute` and `reset`, as torchmetrics has. `features` names
    the layer whose output is the penultimate feature vector (MOON and the feature studies need it); by
    default the model's attribute `penultimate`, else the input of its last linear layer.
    """

    model: nn.Module | Callable[[], nn.Module]
    loss: Loss = cross_entropy
    metrics: Mapping[str, Metric] = field(default_factory=lambda: _USUAL)
    features: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            _check(self.model)
        elif not callable(self.model):
            raise ConfigError(
                f"Task: model is {type(self.model).__name__}: give a torch.nn.Module, or a function or class "
                "that makes one"
            )
        _check_loss(self.loss)
        known = known_loss(self.loss)
        padding = None if known is None else known.padding
        if self.metrics is _USUAL and padding is not None and padding != PADDING:
            counted = partial(accuracy, ignore_index=padding)
            object.__setattr__(self, "metrics", {"accuracy": counted})
        _check_metrics(self.metrics)

    @classmethod
    def regression(
        cls,
        model: nn.Module | Callable[[], nn.Module],
        *,
        loss: Loss = mse_loss,
        metrics: Mapping[str, Metric] | None = None,
        features: str | None = None,
    ) -> Task:
        """Return a task with real numbers as targets: the squared error, and the metrics mse, mae and r2.

        Targets have the outputs' shape: (n, 1) where the model ends in one output.
        """
        return cls(model, loss, {"mse": mse, "mae": mae, "r2": r2} if metrics is None else metrics, features)

    def training_loss(self, output: Any, target: Any) -> Tensor:
        """Return the loss of a minibatch as one number."""
        found: Tensor = number(self.loss(output, target))
        return found

    @property
    def scores(self) -> dict[str, Metric]:
        """Return what a model is evaluated by: the loss, then the metrics."""
        return {"loss": self.loss, **self.metrics}

    @property
    def is_mean_over_samples(self) -> bool:
        """Tell whether loss and all metrics are known to be means over samples: sums of batches will do."""
        return all(is_mean_over_samples(score) for score in self.scores.values())

    def built(self, seed: int) -> Task:
        """Return the task with its model made, from this seed; the task itself where it has a module."""
        if isinstance(self.model, nn.Module):
            return self
        try:
            made = seeded(self.model, seed)
        except FedkeelError:
            raise
        except Exception as problem:
            what = f"{type(problem).__name__}: {problem}".splitlines()[0]
            raise ConfigError(
                f"Task: {_name(self.model)}() failed with {what}: give a function without arguments that "
                "makes the model"
            ) from problem
        if not isinstance(made, nn.Module):
            raise ConfigError(
                f"Task: {_name(self.model)}() gave {type(made).__name__}: it must give a torch.nn.Module"
            )
        return replace(self, model=made)

    @property
    def module(self) -> nn.Module:
        """Return the model, which must have been made."""
        if not isinstance(self.model, nn.Module):
            raise ConfigError(f"Task: {_name(self.model)} makes the model of a run: task.built(seed) has it")
        return self.model

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the model's parameters."""
        return trainable(self.module)[0][1].dtype

    def __repr__(self) -> str:
        return as_text(*self._summary())

    def _repr_html_(self) -> str:
        return as_html(*self._summary())

    def _summary(self) -> tuple[str, dict[str, str]]:
        facts = {"loss": _name(self.loss), "metrics": ", ".join(self.metrics) or "none"}
        if not isinstance(self.model, nn.Module):
            return f"Task: a model that {_name(self.model)} makes from the run's seed", facts
        told = self.describe()
        return f"Task: {told['model']}, {told['parameters']:,} parameters in {told['dtype']}", facts

    def describe(self) -> dict[str, Any]:
        """Return what identifies this task in a manifest."""
        return {
            "model": type(self.module).__name__,
            "parameters": sum(p.numel() for _, p in trainable(self.module)),
            "dtype": str(self.dtype).removeprefix("torch."),
            "loss": stable_name(self.loss),
            "metrics": sorted(self.metrics),
        }


@contextmanager
def watched(module: nn.Module, name: str | None) -> Iterator[list[Tensor]]:
    """Collect the penultimate features of the forward passes made inside the block."""
    found: list[Tensor] = []
    layer, of_input = feature_layer(module, name)
    if of_input:
        handle = layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    else:
        handle = layer.register_forward_hook(lambda _, __, output: found.append(output))
    try:
        yield found
    finally:
        handle.remove()


def feature_layer(module: nn.Module, name: str | None) -> tuple[nn.Module, bool]:
    """Return the layer that shows the features, and whether as its input rather than its output."""
    name = name or getattr(module, "penultimate", None)
    if name is not None:
        try:
            return module.get_submodule(name), False
        except AttributeError:
            raise ConfigError(
                f"features={name!r}: {type(module).__name__} has no such layer; "
                f"it has {', '.join(n for n, _ in module.named_modules() if n)}"
            ) from None
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ConfigError(
            f"{type(module).__name__} has no linear layer to take penultimate features from: "
            "name the layer, as in Task(model, features='pool')"
        )
    return linear[-1], True


def seeded(make: Callable[[], Made], seed: int) -> Made:
    """Return what a function makes when it draws from a seed alone; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(Stream(seed).branch("model").integer())
        return make()


def _check(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ConfigError(
                f"Task: {type(module).__name__} does not know the size of {name!r} yet (a lazy layer): run "
                "a batch through it first"
            )
    parameters = trainable(module)
    if not parameters:
        raise ConfigError(
            f"Task: {type(module).__name__} has no trainable parameters: nothing to train "
            "(is requires_grad off?)"
        )
    kinds = {str(p.dtype) for _, p in parameters}
    if len(kinds) > 1:
        raise ConfigError(f"Task: parameters of several dtypes {sorted(kinds)}: convert the model to one")


def _check_loss(loss: Any) -> None:
    if isinstance(loss, type):
        raise ConfigError(f"Task: loss is the class {loss.__name__}: make one, as in {loss.__name__}()")
    if isinstance(loss, Accumulator):
        raise ConfigError(
            f"Task: loss is a {type(loss).__name__}, which accumulates: it is a metric; give a function of "
            "(output, target) as loss"
        )
    if not callable(loss):
        raise ConfigError(f"Task: loss = {loss!r}: give a function of (output, target)")


def _check_metrics(metrics: Any) -> None:
    if not isinstance(metrics, Mapping):
        raise ConfigError(
            f"Task: metrics = {metrics!r}: give them by name, as in {{'accuracy': fk.accuracy}}"
        )
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(f"Task: a metric is called {name!r}: give it a name, as in 'accuracy'")
        if name in reserved_names() or name.startswith(VALIDATION):
            raise ConfigError(
                f"Task: a metric may not be called {name!r}: a run or a probe writes that column; rename it, "
                f"as in 'my_{name}' (taken: {', '.join(reserved_names())}, {VALIDATION}…)"
            )
        if "/" in name:
            raise ConfigError(
                f"Task: a metric may not be called {name!r}: the columns of probes and further models have a "
                f"'/' in their names; rename it, as in {name.replace('/', '_')!r}"
            )
        if isinstance(metric, type):
            made = f"{metric.__name__}()"
            raise ConfigError(
                f"Task: the metric {name!r} is the class {metric.__name__}: make one, as in {made}"
            )
        if not callable(metric) and not isinstance(metric, Accumulator):
            raise ConfigError(
                f"Task: the metric {name!r} is {metric!r}: give a function of (output, target), or an object "
                "with update, compute and reset"
            )


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)
