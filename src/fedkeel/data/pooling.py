"""Clients' arrays as one pool of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkeel.data.samples import InMemory, check_alike, tensors_of
from fedkeel.tensors.trees import join


def pooled(clients: Sequence[tuple[Any, Any]]) -> tuple[InMemory, Tensor]:
    """Return all samples and each client's count."""
    return _pooled_arrays(clients) or _pooled(clients)


def _pooled(clients: Sequence[tuple[Any, Any]]) -> tuple[InMemory, Tensor]:
    """Return all samples and each client's count, of anything that makes tensors."""
    pairs = [tensors_of(x, y, f"client {i}") for i, (x, y) in enumerate(clients)]
    for i, pair in enumerate(pairs):
        check_alike(pair, pairs[0], f"client {i}", "client 0")
    pool = InMemory(join([pair.x for pair in pairs]), join([pair.y for pair in pairs]))
    return pool, torch.tensor([pair.size for pair in pairs])


def _pooled_arrays(clients: Sequence[tuple[Any, Any]]) -> tuple[InMemory, Tensor] | None:
    """Return the same for NumPy arrays without faults, ten times faster; None for anything else."""
    xs, ys = [x for x, _ in clients], [y for _, y in clients]
    for parts in (xs, ys):
        if not all(type(array) is np.ndarray and array.ndim for array in parts):
            return None
        if len({(array.dtype, array.shape[1:]) for array in parts}) > 1:
            return None
    sizes = [len(x) for x in xs]
    if min(sizes) == 0 or sizes != [len(y) for y in ys]:
        return None
    return tensors_of(np.concatenate(xs), np.concatenate(ys), "the clients"), torch.tensor(sizes)


def offsets_of(sizes: Tensor) -> Tensor:
    """Return where each client's rows begin, and where the last ends."""
    return torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
