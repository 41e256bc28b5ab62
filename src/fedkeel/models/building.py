"""Models by name, for the command line and for experiment files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.core.task import seeded
from fedkeel.models.recurrent import char_lstm
from fedkeel.models.residual import resnet18, resnet18_gn, resnet20, resnet34
from fedkeel.models.simple import cnn, lenet, logistic, mlp
from fedkeel.models.vgg import vgg11

Shape = tuple[int, ...]
Model = Callable[..., nn.Module]
_OF_DATA = ("inputs", "classes", "channels", "size", "vocabulary")  # arguments that follow from the samples


class Architecture(NamedTuple):
    """A built-in model with arguments of its own, not yet fitted to samples and classes."""

    name: str
    options: Mapping[str, Any] = {}


def build(
    model: str | Architecture,
    *,
    shape: Sequence[int],
    classes: int,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> nn.Module:
    """Return a model for samples of `shape` (without the batch axis) and that many classes.

    `model` is a name, or an `Architecture` of a name and arguments. The weights are drawn from `seed`
    alone; torch's global generator is left as it was.
    """
    name, options = (model, {}) if isinstance(model, str) else model
    if name not in _MODELS:
        raise ConfigError(f"there is no model {name!r}; {did_you_mean(name, names())}")
    function, of_data = _MODELS[name]
    given = {**options, **of_data(name, tuple(shape), classes)}
    return seeded(lambda: function(**given).to(dtype), seed)


def names() -> tuple[str, ...]:
    """Return the names that `build` knows."""
    return tuple(_MODELS)


def architectures() -> dict[str, Callable[..., Architecture]]:
    """Return a function per model that takes the model's own arguments, checks them, and keeps them."""
    return {name: _keeping(name, function) for name, (function, _) in _MODELS.items()}


def _keeping(name: str, function: Model) -> Callable[..., Architecture]:
    takes = [
        part.replace(kind=part.POSITIONAL_OR_KEYWORD)
        for part in inspect.signature(function).parameters.values()
        if part.name not in _OF_DATA
    ]
    signature = inspect.Signature(takes)

    def keep(*args: Any, **given: Any) -> Architecture:
        if function is mlp and args and isinstance(args[0], int):
            args = (args,)  # mlp(200, 200) is mlp((200, 200))
        options = signature.bind(*args, **given).arguments
        with torch.device("meta"):  # the model's own checks, without its weights
            seeded(lambda: function(**options), 0)
        return Architecture(name, options)

    keep.__name__ = name
    if function is mlp:
        widths = inspect.Parameter("widths", inspect.Parameter.VAR_POSITIONAL)
        keep.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [widths, *(part.replace(kind=part.KEYWORD_ONLY) for part in takes)]
        )
    else:
        keep.__signature__ = signature  # type: ignore[attr-defined]
    return keep


def _flat(name: str, shape: Shape, classes: int) -> dict[str, int]:
    return {"inputs": prod(shape), "classes": classes}


def _picture(least: int, *, sized: bool = False) -> Callable[[str, Shape, int], dict[str, int]]:
    """Return what a model takes from pictures (channels, size, size): the size where layers need it."""

    def of_data(name: str, shape: Shape, classes: int) -> dict[str, int]:
        if len(shape) != 3 or shape[1] != shape[2] or shape[1] < least:
            raise ConfigError(
                f"model {name} takes square pictures (channels, size, size) of {least}×{least} pixels or "
                f"more, but the samples have shape {shape}; use mlp or logistic for other data"
            )
        return {"classes": classes, "channels": shape[0]} | ({"size": shape[1]} if sized else {})

    return of_data


def _text(name: str, shape: Shape, classes: int) -> dict[str, int]:
    if len(shape) != 1:
        raise ConfigError(f"model {name} takes texts (length,), but the samples have shape {shape}")
    return {"vocabulary": classes}


_MODELS: dict[str, tuple[Model, Callable[[str, Shape, int], dict[str, int]]]] = {
    "logistic": (logistic, _flat),
    "mlp": (mlp, _flat),
    "cnn": (cnn, _picture(16, sized=True)),
    "lenet": (lenet, _picture(16, sized=True)),
    "vgg11": (vgg11, _picture(32)),
    "resnet20": (resnet20, _picture(4)),
    "resnet18": (resnet18, _picture(8)),
    "resnet34": (resnet34, _picture(8)),
    "resnet18_gn": (resnet18_gn, _picture(8)),
    "char_lstm": (char_lstm, _text),
}
