"""Models by name, for the command line and for experiment files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import nn

from fedkeel.errors import ConfigError, did_you_mean
from fedkeel.models.recurrent import char_lstm
from fedkeel.models.residual import resnet18, resnet18_gn, resnet20, resnet34
from fedkeel.models.simple import cnn, lenet, logistic, mlp
from fedkeel.models.vgg import vgg11
from fedkeel.task import seeded

Shape = tuple[int, ...]


def build(
    name: str, *, shape: Sequence[int], classes: int, seed: int = 0, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """Return the model `name` for samples of `shape` (without the batch axis) and that many classes.

    Its weights are drawn from `seed` alone; torch's global generator is left as it was.
    """
    if name not in _BUILDERS:
        raise ConfigError(f"there is no model {name!r}; {did_you_mean(name, names())}")
    return seeded(lambda: _BUILDERS[name](tuple(shape), classes).to(dtype), seed)


def names() -> tuple[str, ...]:
    """Return the names that `build` knows."""
    return tuple(_BUILDERS)


def _flat(model: Callable[[int, int], nn.Module]) -> Callable[[Shape, int], nn.Module]:
    return lambda shape, classes: model(prod(shape), classes)


def _picture(
    model: Callable[[int, int, int], nn.Module], name: str, least: int
) -> Callable[[Shape, int], nn.Module]:
    """Adapt a model of (classes, channels, size) to a shape (channels, size, size)."""

    def make(shape: Shape, classes: int) -> nn.Module:
        if len(shape) != 3 or shape[1] != shape[2] or shape[1] < least:
            raise ConfigError(
                f"model {name} takes square pictures (channels, size, size) of {least}×{least} pixels or "
                f"more, but the samples have shape {shape}; use mlp or logistic for other data"
            )
        return model(classes, shape[0], shape[1])

    return make


def _text(shape: Shape, classes: int) -> nn.Module:
    if len(shape) != 1:
        raise ConfigError(f"model char_lstm takes texts (length,), but the samples have shape {shape}")
    return char_lstm(classes)


_BUILDERS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "logistic": _flat(logistic),
    "mlp": _flat(lambda inputs, classes: mlp(inputs, classes=classes)),
    "cnn": _picture(cnn, "cnn", 16),
    "lenet": _picture(lenet, "lenet", 16),
    "vgg11": _picture(lambda k, c, _: vgg11(k, channels=c), "vgg11", 32),
    "resnet20": _picture(lambda k, c, _: resnet20(k, channels=c), "resnet20", 4),
    "resnet18": _picture(lambda k, c, _: resnet18(k, channels=c), "resnet18", 8),
    "resnet34": _picture(lambda k, c, _: resnet34(k, channels=c), "resnet34", 8),
    "resnet18_gn": _picture(lambda k, c, _: resnet18_gn(k, channels=c), "resnet18_gn", 8),
    "char_lstm": _text,
}
