"""Checks of what a federation is made of."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from fedkeel.common.errors import DataError, did_you_mean


def whole_numbers(sizes: Any) -> list[int]:
    """Return the sizes of clients."""
    try:
        found = [operator.index(size) for size in sizes]
    except TypeError:
        raise DataError(f"from_clients: sizes = {sizes!r}: give one whole number per client") from None
    return found


def as_list(clients: Any, wanted: str) -> list[Any]:
    """Return what was given as clients as a list."""
    if isinstance(clients, str | Mapping | Tensor | np.ndarray) or not isinstance(clients, Iterable):
        raise DataError(f"clients = {kind_of(clients)}: pass {wanted}")
    found = list(clients)
    if not found:
        raise DataError(f"no clients given: pass {wanted}")
    return found


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that a federation does not have."""
    known = ("transform", "augment", "classes", "held_out", "origin")
    for name in options:
        if name not in known:
            raise DataError(f"a federation has no option {name!r}; {did_you_mean(name, known)}")


def is_pair(test: Any) -> bool:
    """Tell whether a test set is given as arrays, or not at all."""
    return test is None or (isinstance(test, tuple | list) and len(test) == 2)


def kind_of(value: Any) -> str:
    """Show a short value, of others their kind."""
    shown = repr(value)
    return shown if len(shown) < 40 else f"a value of type {type(value).__name__}"
