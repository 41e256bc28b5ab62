"""The model of a name for the data that it is to be trained on."""

from __future__ import annotations

import torch
from torch import nn

from fedkeel import models
from fedkeel.common.errors import ConfigError
from fedkeel.data import Federation
from fedkeel.models.building import Architecture


def model_for(
    federation: Federation, architecture: Architecture, *, data: str, seed: int, dtype: torch.dtype
) -> nn.Module:
    """Build a model for the samples and classes of a federation; its weights are drawn from the seed alone.

    `data` is what messages call the data.
    """
    if federation.classes is None:
        raise ConfigError(f"data {data!r} has no classes: train it from Python with your own Task")
    sample = federation.prepare(federation.samples(0)[0][:1])
    if architecture.name == "char_lstm" and sample.is_floating_point():
        raise ConfigError(
            f"model char_lstm takes characters, one whole number each, but the samples are {sample.dtype}: "
            "use mlp or logistic for other data"
        )
    shape = tuple(sample.shape[1:])
    return models.build(architecture, shape=shape, classes=federation.classes, seed=seed, dtype=dtype)
