"""Map-style datasets of any library as trees of tensors: torch's pairs, or rows with named columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.data.samples import Batch, is_several
from fedkeel.tensors.trees import Tree, each, stack

Columns: TypeAlias = str | Sequence[str] | None

_INPUTS = ("image", "img", "x", "features", "input")
_TARGETS = ("label", "labels", "fine_label", "y", "target")
_TOKENS = ("input_ids", "attention_mask", "token_type_ids")  # what a tokenizer of Hugging Face's gives


def arrays(dataset: Any, *, x: Columns = None, y: Columns = None) -> Batch:
    """Return all samples and targets of a map-style dataset as tensors.

    It may hold pairs (torch) or rows with named columns (Hugging Face): `x` and `y` name the columns, several
    as a list, which become a dict of tensors; by default the tokens of a text, or the first of image, img, …
    and label, labels, … that exists.
    """
    if isinstance(dataset, torch.utils.data.TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[0], _targets(dataset.tensors[1])
    check_map_style(dataset)
    return stacked((dataset[i] for i in range(len(dataset))), x, y)


def check_map_style(dataset: Any) -> None:
    """Refuse what has no length and index, and what is empty."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(f"a {type(dataset).__name__} has no length or index; give a map-style dataset")
    if len(dataset) == 0:
        raise DataError(f"this {type(dataset).__name__} has no samples; leave it out")


def stacked(samples: Iterable[Any], x: Columns = None, y: Columns = None) -> Batch:
    """Return samples, pairs or rows with named columns, as a batch."""
    pairs = [_as_pair(sample, x, y) for sample in samples]
    try:
        inputs, targets = (stack([_cells(part) for part in column]) for column in zip(*pairs, strict=True))
    except (RuntimeError, TypeError, ValueError) as problem:
        raise DataError(f"the dataset's samples do not stack to one tensor: {problem}") from None
    return inputs, each(_targets, targets)


def _as_pair(sample: Any, x: Columns, y: Columns) -> tuple[Any, Any]:
    if isinstance(sample, Mapping):
        tokens = [name for name in _TOKENS if name in sample]
        wanted = tokens if x is None and tokens else x
        return _chosen(sample, wanted, _INPUTS, "x"), _chosen(sample, y, _TARGETS, "y")
    if isinstance(sample, tuple | list) and len(sample) == 2:
        return sample[0], sample[1]
    raise DataError(
        f"a sample of the dataset is a {type(sample).__name__}; make it a pair (input, target), "
        "several inputs as a tuple or dict"
    )


def _chosen(row: Mapping[str, Any], wanted: Columns, usual: tuple[str, ...], role: str) -> Any:
    if wanted is None or isinstance(wanted, str):
        return row[column_name(row, wanted, usual, role)]
    return {name: row[column_name(row, name, usual, role)] for name in wanted}


def column_name(columns: Iterable[str], named: str | None, usual: tuple[str, ...], role: str) -> str:
    """Return the column that is named, or the first of the usual ones that exists."""
    known = list(columns)
    found = next((name for name in ((named,) if named else usual) if name in known), None)
    if found is None:
        wanted = repr(named) if named else " or ".join(usual)
        raise DataError(f"no column {wanted} in {', '.join(known)}; name the right one with {role}=...")
    return found


def _cells(value: Any) -> Tree:
    if isinstance(value, Mapping):
        return {name: _cells(part) for name, part in value.items()}
    return tuple(map(_cells, value)) if is_several(value) else _cell(value)


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
