"""Noise that makes clients more unlike (FedInit §5.1), and augmentation that varies pictures.

Noise is a property of the data: `add_noise` applies it once, when the federation is made, and stores the
noisy pictures as bytes again. Keyed by a seed and the client's or class's number, it is the same in
every engine and costs nothing in training. The test set stays clean.

Augmentation is a property of training: the federation applies it to the bytes of each batch, before
they are scaled (after, where its `after_transform` is true), with a generator keyed by (seed, round, client).
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedkeel.common.errors import ConfigError, DataError
from fedkeel.common.frozen import AsGiven, added, frozen
from fedkeel.data.federation import Federation
from fedkeel.data.samples import InMemory
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.trees import Tree, described

_AT_ONCE = 4096  # pictures that are changed at once, as floats


class PictureNoise(Protocol):
    """A change of pictures that depends on their class, their client and a seed, and on nothing else."""

    def __call__(self, x: Tensor, labels: Tensor, clients: Tensor, seed: int) -> Tensor:
        """Return the changed pictures (n, c, h, w), as bytes if they were bytes."""
        ...


@frozen
class ChannelGains:
    """Cameras differ: client i's channels are multiplied by 1 + sigma·N(0, 1), one draw per channel.

    FedInit gives no sigma; 0.2, changes of a fifth, is ours.
    """

    sigma: AsGiven[float] = 0.2

    def __post_init__(self) -> None:
        _check(self, self.sigma)

    def __call__(self, x: Tensor, labels: Tensor, clients: Tensor, seed: int) -> Tensor:
        """Strengthen and weaken the channels of each client's pictures."""
        gains = 1 + self.sigma * _normals(seed, "channel gains", int(clients.max()) + 1, x.shape[1])
        return _like(x, x.float() * gains[clients][:, :, None, None])


@frozen
class ClassBrightness:
    """Categories differ: all channels of class c are shifted by sigma·N(0, 1) of the full range.

    FedInit gives no sigma; 0.1, shifts of a tenth of the range, is ours.
    """

    sigma: AsGiven[float] = 0.1

    def __post_init__(self) -> None:
        _check(self, self.sigma)

    def __call__(self, x: Tensor, labels: Tensor, clients: Tensor, seed: int) -> Tensor:
        """Brighten and darken the pictures by class."""
        full = 1.0 if x.is_floating_point() else 255.0
        shifts = full * self.sigma * _normals(seed, "class brightness", int(labels.max()) + 1, 1)
        return _like(x, x.float() + shifts[labels][:, :, None, None])


def add_noise(federation: Federation, *noises: PictureNoise, seed: int = 0) -> Federation:
    """Return the federation with noisy training pictures, each client's its own copy.

    A sample that several clients share becomes several samples; held-out clients get noise too.
    """
    check_pictures("noise", federation.x)
    if federation.y.is_floating_point():
        raise DataError(
            f"noise is for pictures with classes, but the targets are {federation.y.dtype}: leave it out"
        )
    if federation.validation is not None or federation.client_tests is not None:
        raise DataError(
            "noise on a federation with held-out samples: add the noise first, then hold them out"
        )
    sizes = federation.offsets.diff()
    clients = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    x, y = federation.x[federation.index], federation.y[federation.index]
    for part in torch.split(torch.arange(len(x)), _AT_ONCE):
        for noise in noises:
            x[part] = noise(x[part], y[part], clients[part], seed)
    described = {"noise": [repr(noise) for noise in noises], "noise_seed": seed}
    index = torch.arange(len(x))
    return replace(federation, pool=InMemory(x, y), index=index, origin={**federation.origin, **described})


@frozen
class Augment:
    """Mirror each picture with probability ½, and shift it by up to `pad` pixels, filling with black.

    The usual 4 pixels for CIFAR, 8 for Tiny-ImageNet. `flip_probability` and `crop_probability` say how
    likely a picture is mirrored and shifted; `grey=True` fills after the pictures are normalised, with zeros,
    which is the mean colour. FL-Simulator runs `Augment(crop_probability=0.5, grey=True)`.
    """

    flip: AsGiven[bool] = True
    pad: AsGiven[int] = 4
    flip_probability: AsGiven[float] = added(0.5)
    crop_probability: AsGiven[float] = added(1.0)
    grey: AsGiven[bool] = added(False)

    @property
    def after_transform(self) -> bool:
        """Tell the federation to normalise the pictures first."""
        return self.grey

    def __post_init__(self) -> None:
        if not isinstance(self.flip, bool):
            raise ConfigError(f"{self}: flip is {self.flip!r}; use True or False")
        if isinstance(self.pad, bool) or not isinstance(self.pad, Integral) or self.pad < 0:
            raise ConfigError(f"{self}: pad is {self.pad!r}; use 0 or a positive whole number of pixels")
        for name, used in (("flip_probability", self.flip), ("crop_probability", self.pad > 0)):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, Real) or not 0 <= given <= 1:
                raise ConfigError(f"{self}: {name} is {given!r}; use a number from 0 to 1")
            if not used and given != type(self).__dataclass_fields__[name].default:
                without = "flip=False" if name.startswith("flip") else "pad=0"
                raise ConfigError(f"{self}: {name} has no effect with {without}: leave one of them out")
        if not isinstance(self.grey, bool):
            raise ConfigError(f"{self}: grey is {self.grey!r}; use True or False")

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Vary a batch (n, c, h, w) of bytes or floats; one gather for all its pictures."""
        check_pictures("augmentation", x)
        n, channels, height, width = x.shape
        if self.pad >= min(height, width):
            raise DataError(
                f"{self}: pictures have {height}×{width} pixels, and a shift by {self.pad} may leave nothing "
                "of them: give a smaller pad"
            )
        columns = torch.arange(width).expand(n, width)
        if self.flip:
            mirrored = torch.rand(n, 1, generator=generator) < self.flip_probability
            columns = torch.where(mirrored, columns.flip(1), columns)
        shift = torch.randint(2 * self.pad + 1, (2, n, 1), generator=generator)
        if self.crop_probability < 1:
            cropped = torch.rand(n, 1, generator=generator) < self.crop_probability
            shift = torch.where(cropped, shift, self.pad)
        rows, columns = torch.arange(height) + shift[0], columns + shift[1]
        pixels = rows[:, :, None] * (width + 2 * self.pad) + columns[:, None, :]
        padded = functional.pad(x, (self.pad,) * 4).flatten(2)
        return padded.gather(2, pixels.reshape(n, 1, -1).expand(n, channels, -1)).view(x.shape)


def check_pictures(what: str, x: Tree) -> None:
    """Refuse samples that are no pictures; `what` is for pictures only."""
    if not isinstance(x, Tensor) or x.ndim != 4:
        raise DataError(
            f"{what} is for pictures (channels, height, width), but a sample is {described(x)}: "
            "leave it out, or take data of pictures, as cifar10 or mnist"
        )


def _normals(seed: int, purpose: str, rows: int, columns: int) -> Tensor:
    """Row i is the same however many rows there are."""
    drawn = Stream(seed).branch(purpose).numpy().standard_normal((rows, columns), dtype=np.float32)
    return torch.from_numpy(drawn)


def _like(x: Tensor, changed: Tensor) -> Tensor:
    """Bring changed pictures back to the stored type and range."""
    if x.is_floating_point():
        return changed.to(x.dtype)
    return changed.round_().clamp_(0, 255).to(x.dtype)


def _check(noise: object, sigma: float) -> None:
    if isinstance(sigma, bool) or not isinstance(sigma, Real) or not 0 <= sigma < float("inf"):
        raise ConfigError(f"{noise}: sigma is {sigma!r}; use 0 (no noise) or a positive number")
