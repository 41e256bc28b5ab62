"""A task: a model, its loss, and the metrics that are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedkeel.errors import ConfigError
from fedkeel.identity import stable_name
from fedkeel.layout import trainable
from fedkeel.streams import Stream
from fedkeel.summary import as_html, as_text

Made = TypeVar("Made")
Metric = Callable[[Tensor, Tensor], Tensor]


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """Return the share of samples whose largest output is the target class."""
    return (output.argmax(1) == target).double().mean()


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained: any `nn.Module`, a loss that is a mean over samples, metrics of (output, target).

    The model may also be a function or class that makes one, as in `Task(Net)` or `Task(lambda: Net(10))`: it
    is called once per run, and what it draws comes from the run's seed. A module is never changed: training
    works on copies, and its weights are those of the first round whatever the seed. `features` names the
    layer whose output is the penultimate feature vector (MOON and the feature studies need it); by default
    the model's attribute `penultimate`, else the input of its last linear layer.
    """

    model: nn.Module | Callable[[], nn.Module]
    loss: Metric = cross_entropy
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"accuracy": accuracy})
    features: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            _check(self.model)
        elif not callable(self.model):
            raise ConfigError(
                f"Task: model is {type(self.model).__name__}: give a torch.nn.Module, or a function or class "
                "that makes one"
            )
        reserved = {"round", "cohort", "loss", "seconds", "bytes_down", "bytes_up"} & set(self.metrics)
        if reserved:
            raise ConfigError(f"Task: a metric may not be called {reserved.pop()!r}: that column is taken")

    def built(self, seed: int) -> Task:
        """Return the task with its model made, from this seed; the task itself where it has a module."""
        if isinstance(self.model, nn.Module):
            return self
        made = seeded(self.model, seed)
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
    parameters = trainable(module)
    if not parameters:
        raise ConfigError(
            f"Task: {type(module).__name__} has no trainable parameters: nothing to train "
            "(is requires_grad off?)"
        )
    kinds = {str(p.dtype) for _, p in parameters}
    if len(kinds) > 1:
        raise ConfigError(f"Task: parameters of several dtypes {sorted(kinds)}: convert the model to one")


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)
