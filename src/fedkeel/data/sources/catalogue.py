"""The data sets by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedkeel.common.errors import DataError, did_you_mean
from fedkeel.data.sources import generated, pictures, text
from fedkeel.data.sources.dataset import Dataset
from fedkeel.data.sources.fetch import DataDirectories

_STORED: dict[str, Callable[..., Dataset]] = {
    "cifar10": pictures.cifar10,
    "cifar100": pictures.cifar100,
    "tiny-imagenet": pictures.tiny_imagenet,
    "emnist-letters": pictures.emnist_letters,
    "emnist-l": pictures.emnist_l,
    "mnist": pictures.mnist,
    "fashion-mnist": pictures.fashion_mnist,
    "shakespeare": text.shakespeare,
}
_GENERATED: dict[str, Callable[..., Dataset]] = {
    "digits": generated.digits,
    "synthetic": generated.synthetic,
}


def names() -> tuple[str, ...]:
    """Return the names that `load` knows."""
    return (*_STORED, *_GENERATED)


def load(name: str, *, root: Path | None = None, download: bool = True, **options: Any) -> Dataset:
    """Return a data set by name.

    Files are looked for in `root` (else in the folder that FEDKEEL_DATA names), then in the cache
    (FEDKEEL_CACHE, else fedkeel in the user's cache folder), then downloaded there from the official
    address, over https, and checked against a SHA-256; so is, once, an official file that is there already.
    Further options are those of the data set: `coarse` of cifar100; `max_samples`, `roles`, `train_share`,
    `seed` of shakespeare; those of `generated.synthetic`.
    """
    if name not in names():
        raise DataError(f"there is no data set {name!r}; {did_you_mean(str(name), names())}")
    make = _STORED.get(name) or _GENERATED[name]
    known = [option for option in inspect.signature(make).parameters if option != "directories"]
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) if known else "it has none"
            raise DataError(f"{name} has no option {option!r}; {hint}")
    if name in _GENERATED:
        return make(**options)
    return make(DataDirectories.standard(root, download=download), **options)
