"""VGG-11 (Simonyan & Zisserman 2014) for small pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

from fedkeel.common.errors import ConfigError
from fedkeel.models.network import GlobalMean, Network, he_initialise

_REPEATS = ((0, 1), (1, 1), (2, 2), (3, 2), (3, 2))  # (which width, how many convolutions) between poolings


def vgg11(
    classes: int = 10,
    *,
    widths: Sequence[int] = (64, 128, 256, 512),
    norm: Literal["none", "batch", "group"] = "none",
    channels: int = 3,
) -> Network:
    """VGG-11 of widths 64, 128, 256, 512 (Rethinking, FedInit): 9,225,610 parameters for CIFAR-10.

    Eight 3×3 convolutions in five stages, each stage ended by 2×2 max-pooling, then one linear layer:
    the papers give the widths only, and on 32×32 pictures the original's two layers of 4,096 would be
    twelve times the rest. Pictures need 32×32 pixels or more. `norm` puts BatchNorm, or GroupNorm of
    2 groups, after each convolution; the original has none.
    """
    if len(widths) != 4 or norm not in ("none", "batch", "group"):
        raise ConfigError(
            f"vgg11 takes four widths and a norm of 'none', 'batch' or 'group', not {widths}, {norm!r}"
        )
    parts: dict[str, nn.Module] = {}
    inputs = channels
    for stage, (which, repeats) in enumerate(_REPEATS, start=1):
        for i in range(1, repeats + 1):
            name, outputs = f"{stage}_{i}", widths[which]
            parts[f"conv{name}"] = nn.Conv2d(inputs, outputs, 3, padding=1)
            if norm != "none":
                parts[f"norm{name}"] = (
                    nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(2, outputs)
                )
            parts[f"relu{name}"] = nn.ReLU()
            inputs = outputs
        parts[f"maxpool{stage}"] = nn.MaxPool2d(2)
    head = nn.Linear(inputs, classes)
    return he_initialise(Network(penultimate="pool", **parts, pool=GlobalMean(), head=head))
