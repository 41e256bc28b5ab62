"""Tables and texts as numbers: pandas' DataFrames and Series, and labels that are words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fedkeel.common.errors import DataError


class NumericData(NamedTuple):
    """Clients and test set as arrays of numbers, and the words that class numbers stand for."""

    clients: Sequence[tuple[Any, Any]]
    test: tuple[Any, Any] | None
    labels: list[str] | None


def in_numbers(clients: Sequence[tuple[Any, Any]], test: tuple[Any, Any] | None) -> NumericData:
    """Return data as arrays of numbers; that which is in numbers already is returned as it is.

    Whether something is to be done is seen from the first client, whose columns all tables must have: they
    are matched by name. Words become class numbers in the order of the alphabet, over all clients and the
    test set.
    """
    owners = [f"client {client}" for client in range(len(clients))]
    tests = [] if test is None else [("the test set", test)]
    for owner, pair in (*zip(owners, clients, strict=True), *tests):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"{owner} is a {type(pair).__name__}: give a pair (x, y) of arrays")
    if not any(_is_table(part) or _are_words(part) for part in clients[0]):
        return NumericData(clients, test, None)
    first = clients[0]

    def numbers(pair: tuple[Any, Any], owner: str) -> tuple[Any, Any]:
        x = _in_order(pair[0], first[0], f"{owner}: x")
        y = _in_order(pair[1], first[1], f"{owner}: y")
        return _columns(x, owner), _column(y, owner)

    found = [numbers(pair, owner) for pair, owner in zip(clients, owners, strict=True)]
    tested = None if test is None else numbers(test, "the test set")
    if not _are_words(found[0][1]):
        return NumericData(found, tested, None)
    targets = [y for _, y in [*found, *([] if tested is None else [tested])]]
    labels = sorted({str(label) for y in targets for label in np.unique(np.asarray(y).astype(str))})
    numbered = [(x, np.searchsorted(labels, np.asarray(y).astype(str))) for x, y in found]
    if tested is not None:
        tested = tested[0], np.searchsorted(labels, np.asarray(tested[1]).astype(str))
    return NumericData(numbered, tested, labels)


def _in_order(table: Any, first: Any, owner: str) -> Any:
    """Return a table with its columns in the order of client 0's; refuse one that has others."""
    if not (hasattr(table, "columns") and hasattr(first, "columns")):
        return table
    names, wanted = list(table.columns), list(first.columns)
    if names == wanted:
        return table
    missing = [repr(name) for name in wanted if name not in names]
    more = [repr(name) for name in names if name not in wanted]
    if missing or more or len(names) != len(wanted):
        parts = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(more)}"] * bool(more)
        raise DataError(
            f"{owner} {' and '.join(parts) or 'has columns twice'}, unlike client 0: give every client "
            "the same columns, in any order"
        )
    return table[wanted]


def _is_table(part: Any) -> bool:
    return hasattr(part, "to_numpy") and not isinstance(part, Tensor)


def _are_words(part: Any) -> bool:
    if isinstance(part, Tensor | dict | tuple):  # trees hold numbers
        return False
    try:
        array = part.to_numpy() if _is_table(part) else np.asarray(part)
    except ValueError:  # rows of unequal length: refused where tensors are made
        return False
    return array.dtype.kind in "US" or (array.dtype.kind == "O" and array.size > 0 and _only_words(array))


def _only_words(array: np.ndarray) -> bool:
    return all(isinstance(one, str) for one in array.flat)


def _columns(x: Any, owner: str) -> Any:
    """Return inputs as an array; a column that holds no numbers is named."""
    if not hasattr(x, "columns"):
        return x.to_numpy(copy=True) if _is_table(x) else x
    for name in x.columns:
        column = x[name].to_numpy()
        if column.dtype.kind not in "fiub":
            raise DataError(
                f"{owner}: the column {name!r} of x holds {column.dtype}, no numbers: leave it out or encode "
                "it, as pandas.get_dummies does"
            )
    kinds = [x[name].to_numpy().dtype for name in x.columns]
    return x.to_numpy(dtype=np.result_type(*kinds), copy=True)


def _column(y: Any, owner: str) -> Any:
    """Return targets as an array; a table of one column of classes is that column."""
    if not _is_table(y):
        return y
    array = y.to_numpy(copy=True)
    if array.dtype.kind == "O" and not _only_words(array):
        missing = f"{owner}: y holds {array.dtype} values that are neither numbers nor words"
        raise DataError(f"{missing} (is one missing?): clean it first")
    classes = array.dtype.kind != "f"
    return array[:, 0] if classes and array.ndim == 2 and array.shape[1] == 1 else array
