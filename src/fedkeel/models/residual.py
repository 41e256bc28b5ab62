"""Residual networks (He et al. 2016), with BatchNorm or, as federated papers prefer, GroupNorm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from fedkeel.common.errors import ConfigError
from fedkeel.models.network import GlobalMean, Network, he_initialise
from fedkeel.models.simple import check_sizes

Norm: TypeAlias = Callable[[int], nn.Module]
Stem: TypeAlias = Literal["7x7", "3x3"]
_WIDTHS = (64, 128, 256, 512)


class PadChannels(nn.Module):
    """He's parameter-free shortcut ("option A"): every second pixel, new channels filled with zeros."""

    def __init__(self, extra: int) -> None:
        super().__init__()
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        """Halve the picture and add the channels, half of them before and half after."""
        before = self.extra // 2
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, before, self.extra - before))


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, *, pad: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 and pad:
            self.shortcut = PadChannels(outputs - inputs)
        elif stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(shortcut(x) + branch(x))."""
        branch = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(self.shortcut(x) + branch)


def resnet18_gn(classes: int = 10, *, stem: Stem = "7x7", groups: int = 2, channels: int = 3) -> Network:
    """ResNet-18 with GroupNorm (FedInit, FedSAGD): 11,181,642 parameters for 10 classes.

    `stem="7x7"` is the original's (stride 2, then 3×3 max-pooling), as FedSAGD uses even on 32×32
    pictures; `"3x3"` (stride 1, no pooling) keeps small pictures whole: 11,173,962 parameters.
    """
    check_sizes("resnet18_gn", groups=groups)
    if _WIDTHS[0] % groups:
        raise ConfigError(f"resnet18_gn: groups = {groups}: give a divisor of {_WIDTHS[0]}, as 2 or 32")
    return _imagenet(classes, (2, 2, 2, 2), stem, partial(nn.GroupNorm, groups), channels=channels)


def resnet18(classes: int = 10, *, stem: Stem = "7x7", channels: int = 3) -> Network:
    """ResNet-18 with BatchNorm (Rethinking): 11,689,512 parameters for 1,000 classes."""
    return _imagenet(classes, (2, 2, 2, 2), stem, nn.BatchNorm2d, channels=channels)


def resnet34(classes: int = 200, *, stem: Stem = "7x7", channels: int = 3) -> Network:
    """ResNet-34 with BatchNorm (Rethinking, Tiny-ImageNet): 21,797,672 parameters for 1,000 classes."""
    return _imagenet(classes, (3, 4, 6, 3), stem, nn.BatchNorm2d, channels=channels)


def resnet20(classes: int = 100, *, channels: int = 3) -> Network:
    """ResNet-20 of widths 16, 32, 64 (Rethinking, CIFAR-100): 275,572 parameters for 100 classes.

    He's network for 32×32 pictures: a 3×3 stem and shortcuts without parameters.
    """
    parts: dict[str, nn.Module] = {
        "conv": nn.Conv2d(channels, 16, 3, padding=1, bias=False),
        "norm": nn.BatchNorm2d(16),
        "relu": nn.ReLU(),
    }
    block = partial(Block, norm=nn.BatchNorm2d, pad=True)
    return _network(parts, (16, 32, 64), (3, 3, 3), block, classes)


def _imagenet(classes: int, depths: tuple[int, ...], stem: Stem, norm: Norm, *, channels: int) -> Network:
    if stem not in ("7x7", "3x3"):
        raise ConfigError(f"stem is {stem!r}; use '7x7' or '3x3'")
    large = stem == "7x7"
    size, stride = (7, 2) if large else (3, 1)
    parts: dict[str, nn.Module] = {
        "conv": nn.Conv2d(channels, 64, size, stride=stride, padding=size // 2, bias=False),
        "norm": norm(64),
        "relu": nn.ReLU(),
    }
    if large:
        parts["maxpool"] = nn.MaxPool2d(3, stride=2, padding=1)
    return _network(parts, _WIDTHS, depths, partial(Block, norm=norm), classes)


def _network(
    parts: dict[str, nn.Module],
    widths: tuple[int, ...],
    depths: tuple[int, ...],
    block: Callable[[int, int, int], nn.Module],
    classes: int,
) -> Network:
    """Put the stages after the stem: each but the first halves the picture in its first block."""
    inputs = widths[0]
    for i, (width, depth) in enumerate(zip(widths, depths, strict=True), start=1):
        first = block(inputs, width, 1 if i == 1 else 2)
        parts[f"stage{i}"] = nn.Sequential(first, *(block(width, width, 1) for _ in range(depth - 1)))
        inputs = width
    head = nn.Linear(inputs, classes)
    return he_initialise(Network(penultimate="pool", **parts, pool=GlobalMean(), head=head))
