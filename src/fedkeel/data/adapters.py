"""The user's own data: torch datasets, image folders, Hugging Face datasets and Flower's federations.

Foreign objects are taken by what they can do, so none of their packages is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.data.arrays import arrays, column_name
from fedkeel.data.federation import Federation
from fedkeel.data.sources.dataset import Dataset, Scale
from fedkeel.data.sources.readers import read_picture, reading

_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm"}


def from_torch(
    dataset: Any,
    test: Any = None,
    *,
    name: str = "torch",
    transform: Callable[[Tensor], Tensor] | None = None,
) -> Dataset:
    """Make a data set of map-style torch datasets, read once; `transform` then takes whole batches."""
    test_arrays = None if test is None else arrays(test)
    return Dataset.from_arrays(*arrays(dataset), test_arrays, name=name, transform=transform)


def from_huggingface(
    dataset: Any,
    test: Any = None,
    *,
    x: str | None = None,
    y: str | None = None,
    group: str | None = None,
    name: str = "huggingface",
    transform: Callable[[Tensor], Tensor] | None = None,
) -> Dataset:
    """Make a data set of Hugging Face `datasets`; `group` names the column of natural clients."""
    test_arrays = None if test is None else arrays(test, x=x, y=y)
    options: dict[str, Any] = {}
    if group is not None:
        column = column_name(dataset.column_names, group, (), "group")
        labels, numbers = np.unique(np.asarray(dataset[column][:]), return_inverse=True)
        options = {"groups": numbers.astype(np.int64), "group_names": tuple(map(str, labels))}
    pair = arrays(dataset, x=x, y=y)
    return Dataset.from_arrays(*pair, test_arrays, name=name, transform=transform, **options)


def from_flower(
    federated: Any,
    *,
    split: str = "train",
    test: str | None = "test",
    x: str | None = None,
    y: str | None = None,
    transform: Callable[[Tensor], Tensor] | None = None,
) -> Federation:
    """Make a federation of a `flwr_datasets.FederatedDataset`, one client per partition."""
    count = federated.partitioners[split].num_partitions
    clients = [arrays(federated.load_partition(i, split), x=x, y=y) for i in range(count)]
    test_arrays = None if test is None else arrays(federated.load_split(test), x=x, y=y)
    labels = [pair[1] for pair in (*clients, *([test_arrays] if test_arrays else []))]
    classes = None if labels[0].is_floating_point() else 1 + max(int(part.max()) for part in labels)
    origin = {"dataset": "flwr-datasets", "split": split, "clients": count}
    return Federation.from_arrays(clients, test_arrays, classes=classes, transform=transform, origin=origin)


def image_folder(path: Path | str, *, name: str | None = None) -> Dataset:
    """Read `path/train/<class>/*` and `path/test/<class>/*` (or val), or `path/<class>/*` without a test set.

    All pictures must have one size. They are kept as bytes and scaled to mean ½ and deviation ½.
    """
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"there is no folder {str(root)!r}; give one with one folder of pictures per class")
    train = root / "train" if (root / "train").is_dir() else root
    test = next((root / part for part in ("test", "val") if train != root and (root / part).is_dir()), None)
    class_names = sorted(folder.name for folder in train.iterdir() if folder.is_dir())
    return Dataset.from_arrays(
        *_pictures(train, class_names),
        None if test is None else _pictures(test, class_names),
        name=name or root.name,
        classes=len(class_names),
        class_names=tuple(class_names),
        transform=Scale((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    )


def _pictures(folder: Path, class_names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    pictures, labels, first = [], [], None
    for label, class_name in enumerate(class_names):
        for file in sorted((folder / class_name).glob("*")):
            if file.suffix.lower() not in _SUFFIXES:
                continue
            with reading(file):
                picture = read_picture(file)
            first = first or (file, picture.shape)
            if picture.shape != first[1]:
                raise DataError(
                    f"{file} has shape {picture.shape} but {first[0]} {first[1]}; resize them to one size"
                )
            pictures.append(picture)
            labels.append(label)
    if not pictures:
        raise DataError(f"no pictures in {folder}; put them in one folder per class ({', '.join(_SUFFIXES)})")
    return np.stack(pictures), np.array(labels)
