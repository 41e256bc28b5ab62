"""How many samples of each class clients have: what a split looks like."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedkeel.data.federation import Federation
from fedkeel.data.samples import InMemory

LabelCounts = NDArray[np.int64]


def count_labels(federation: Federation, most: int | None = None) -> LabelCounts | None:
    """Return samples by client (row) and class (column) of the first `most` clients, held-out ones last.

    None where targets are not one whole number per sample, or are loaded only when they are needed.
    """
    pool = federation.pool
    if not isinstance(pool, InMemory):
        return None
    targets = pool.y
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.ndim != 1:
        return None
    classes = federation.classes or int(targets.max()) + 1
    clients = min(len(federation.offsets) - 1, most or len(federation.offsets))
    offsets = federation.offsets[: clients + 1]
    owner = np.repeat(np.arange(clients), offsets.diff().numpy())
    label = targets[federation.index[: int(offsets[-1])]].numpy()
    return (
        np.bincount(owner * classes + label, minlength=clients * classes)
        .reshape(clients, classes)
        .astype(np.int64)
    )


def class_names(federation: Federation, count: int) -> tuple[str, ...]:
    """Return the names of the classes: the words they were numbered from, else their numbers."""
    words = federation.origin.get("labels")
    return tuple(map(str, words)) if words and len(words) == count else tuple(map(str, range(count)))
