"""What a user's own function or object is known by when a run is resumed: never a memory address."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LIBRARIES = ("torch", "fedkeel")  # their functions go by name, whatever the version


def stable_name(value: Any) -> str:
    """Return a text that is the same for the same value in another process, and another one for others.

    What prints itself goes by that. A function goes by its name, its source and the values that it closes
    over; other objects go by their class and attributes, tensors and arrays by a hash of their numbers.
    """
    return _within(value, ())


def _within(value: Any, outer: tuple[int, ...]) -> str:
    """Name a value; one that holds itself ends there."""
    return "…" if id(value) in outer else _name(value, lambda part: _within(part, (*outer, id(value))))


@functools.singledispatch
def _name(value: Any, inside: Callable[[Any], str]) -> str:
    shown = repr(value)
    if not _ADDRESS.search(shown):
        return shown
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    attributes = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return f"{type(value).__qualname__}{inside({**attributes, **getattr(value, '__dict__', {})})}"


@_name.register(torch.Tensor)
@_name.register(np.ndarray)
def _(value: Any, inside: Callable[[Any], str]) -> str:
    array = np.ascontiguousarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
    return f"{array.dtype}{array.shape}#{_hash(array.tobytes())}"


@_name.register(Mapping)
def _(value: Mapping[Any, Any], inside: Callable[[Any], str]) -> str:
    return f"{{{', '.join(f'{inside(key)}: {inside(one)}' for key, one in value.items())}}}"


@_name.register(list)
@_name.register(tuple)
def _(value: Sequence[Any], inside: Callable[[Any], str]) -> str:
    return f"({', '.join(inside(one) for one in value)})"


@_name.register
def _(value: nn.Module, inside: Callable[[Any], str]) -> str:
    return f"{type(value).__qualname__}{inside(dict(value.state_dict()))}"


@_name.register
def _(value: functools.partial, inside: Callable[[Any], str]) -> str:  # type: ignore[type-arg]
    return f"{inside(value.func)}{inside((value.args, value.keywords))}"


@_name.register
def _(value: MethodType, inside: Callable[[Any], str]) -> str:
    return f"{inside(value.__self__)}.{value.__name__}"


@_name.register(type)
@_name.register(BuiltinFunctionType)
def _(value: Any, inside: Callable[[Any], str]) -> str:
    return str(value.__qualname__)


@_name.register
def _(value: FunctionType, inside: Callable[[Any], str]) -> str:
    if value.__module__.partition(".")[0] in _LIBRARIES:
        return value.__qualname__
    try:
        text = inspect.getsource(value)
    except (OSError, TypeError):  # typed at a prompt
        text = _of_code(value.__code__)
    closed = [cell.cell_contents for cell in value.__closure__ or ()]
    given = inside((closed, value.__defaults__ or (), value.__kwdefaults__ or {}))
    return f"{value.__qualname__}#{_hash((text + given).encode())}"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _of_code(code: CodeType) -> str:
    constants = [_of_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
