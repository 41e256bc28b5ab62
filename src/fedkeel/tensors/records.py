"""Records: NamedTuples of tensors, of other records, or of None where a part is absent.

Server, Client, Down and Up of every method are records. What crosses the wire, goes to disk or is averaged
is handled here, field by field, under dotted names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

Record = Any  # a NamedTuple; Python's types cannot say "a NamedTuple of tensors or of such"


class Nothing(NamedTuple):
    """The record without fields: a method that keeps or sends nothing."""


class RecordList(tuple[Record, ...]):
    """Records side by side as one record, their names the numbers from 0 on."""

    __slots__ = ()

    def __new__(cls, *parts: Record) -> RecordList:
        """Take the records one by one."""
        return super().__new__(cls, parts)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    @property
    def _fields(self) -> tuple[str, ...]:
        return tuple(str(index) for index in range(len(self)))


class ClientMemory(NamedTuple):
    """What a client keeps between rounds: the method's memory (None: none yet) and the probes' notes."""

    method: Record
    notes: RecordList = RecordList()


def is_record(value: object) -> TypeGuard[Any]:
    """Tell whether a value is a record."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def transform(function: Callable[..., Tensor], first: Record, *others: Record) -> Record:
    """Apply a function to corresponding tensors of records of one kind."""
    if first is None:
        return None
    if is_record(first):
        parts = zip(first, *others, strict=True)
        return type(first)(*(transform(function, *part) for part in parts))
    return function(first, *others)


def leaves(record: Record, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a record with their dotted names."""
    if record is None:
        return
    if not is_record(record):
        yield prefix, record
        return
    for name, part in zip(record._fields, record, strict=True):
        yield from leaves(part, f"{prefix}.{name}" if prefix else name)


def rebuild(template: Record, tensors: Mapping[str, Tensor], prefix: str = "") -> Record:
    """Return a record shaped like the template with the tensors of the given dotted names."""
    if template is None:
        return None
    if not is_record(template):
        return tensors[prefix]
    parts = zip(template._fields, template, strict=True)
    return type(template)(
        *(rebuild(part, tensors, f"{prefix}.{name}" if prefix else name) for name, part in parts)
    )


def nbytes(record: Record) -> int:
    """Return how many bytes the tensors of a record take on the wire."""
    return sum(tensor.numel() * tensor.element_size() for _, tensor in leaves(record))


def without_views_of(tensor: Tensor, record: Record) -> Record:
    """Return the record with copies of whatever lies in the memory of a tensor."""
    memory = tensor.untyped_storage().data_ptr()
    return transform(lambda t: t.clone() if t.untyped_storage().data_ptr() == memory else t, record)


def stack(records: Sequence[Record]) -> Record:
    """Stack records of one kind along a new first axis."""
    return transform(lambda *tensors: torch.stack(tensors), *records)
