"""Map-style datasets of any library as two tensors: torch's pairs, or rows with named columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedkeel.errors import DataError

Batch: TypeAlias = tuple[Tensor, Tensor]

_INPUTS = ("image", "img", "x", "features", "input")
_TARGETS = ("label", "labels", "fine_label", "y", "target")


def arrays(dataset: Any, *, x: str | None = None, y: str | None = None) -> Batch:
    """Return all samples and targets of a map-style dataset as two tensors.

    It may hold pairs (torch) or rows with named columns (Hugging Face): `x` and `y` name the columns,
    by default the first of image, img, … and label, labels, … that exists.
    """
    if isinstance(dataset, torch.utils.data.TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[0], _targets(dataset.tensors[1])
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(f"a {type(dataset).__name__} has no length or index; give a map-style dataset")
    if len(dataset) == 0:
        raise DataError(f"this {type(dataset).__name__} has no samples; leave it out")
    if columns := getattr(dataset, "column_names", None):
        a, b = column_name(columns, x, _INPUTS, "x"), column_name(columns, y, _TARGETS, "y")
        return _stack((row[a], row[b]) for row in (dataset[i] for i in range(len(dataset))))
    return _stack(_as_pair(dataset[i]) for i in range(len(dataset)))


def column_name(columns: Iterable[str], named: str | None, usual: tuple[str, ...], role: str) -> str:
    """Return the column that is named, or the first of the usual ones that exists."""
    known = list(columns)
    found = next((name for name in ((named,) if named else usual) if name in known), None)
    if found is None:
        wanted = repr(named) if named else " or ".join(usual)
        raise DataError(f"no column {wanted} in {', '.join(known)}; name the right one with {role}=...")
    return found


def _as_pair(sample: Any) -> tuple[Any, Any]:
    if isinstance(sample, tuple | list) and len(sample) == 2:
        return sample[0], sample[1]
    raise DataError(f"a sample of the dataset is a {type(sample).__name__}; make it a pair (input, target)")


def _stack(pairs: Iterable[tuple[Any, Any]]) -> Batch:
    columns = zip(*pairs, strict=True)
    try:
        x, y = (torch.stack([_cell(value) for value in column]) for column in columns)
    except (RuntimeError, TypeError, ValueError) as problem:
        raise DataError(f"the dataset's samples do not stack to one tensor: {problem}") from None
    return x, _targets(y)


def _cell(value: Any) -> Tensor:
    """One input or target as a tensor; a picture as (channels, height, width) bytes."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "getbands"):  # a Pillow picture
        pixels = np.asarray(value)
        return torch.from_numpy((pixels[..., None] if pixels.ndim == 2 else pixels).transpose(2, 0, 1).copy())
    return torch.as_tensor(np.asarray(value))


def _targets(y: Tensor) -> Tensor:
    return y.float() if y.is_floating_point() else y.long()
