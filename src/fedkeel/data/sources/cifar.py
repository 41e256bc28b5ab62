"""Reader of the CIFAR python archives that runs nothing of what is in them.

The archives hold Python 2 pickles, and a pickle is a program: unpickling an archive from a stranger runs
the stranger's code. So the pickle's instructions are interpreted here, by hand, and only those that
build dictionaries, lists, numbers, strings and byte arrays are known. A name such as `numpy.ndarray` is
kept as text and never looked up; a "call" is kept as data, and the one shape of call that is understood
is that of an array of bytes. Anything else is an error.
"""

from __future__ import annotations

import pickletools
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from fedkeel.data.sources.readers import Arrays, Bytes, reading

_TEXT = {"SHORT_BINSTRING", "BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "STRING", "UNICODE"}
_PLAIN = _TEXT | {"BININT", "BININT1", "BININT2", "INT", "LONG1", "SHORT_BINBYTES", "BINBYTES"}
_EMPTY: dict[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_ARRAY = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}


class _Call:
    """A call that the pickle asks for: recorded, not made."""

    def __init__(self, name: str, arguments: Any) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = None


class _Machine:
    """The stack of the pickle language, for the few instructions that plain data needs."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            self.step(opcode.name, argument)
        return self.stack.pop()

    def step(self, name: str, argument: Any) -> None:
        if name in _PLAIN:
            self.stack.append(argument)
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memory[int(argument)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memory[int(argument)])
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name == "GLOBAL":
            self.stack.append(_Call(argument, None))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            self.stack.append(_shallow(self.take(int(name[-1]))))
        elif name not in ("PROTO", "STOP"):
            self.combine(name)

    def combine(self, name: str) -> None:
        if name in ("TUPLE", "LIST", "APPENDS", "SETITEMS"):
            values = self.take(len(self.stack) - self.marks.pop())
        elif name in ("APPEND", "BUILD", "REDUCE"):
            values = self.take(1)
        elif name == "SETITEM":
            values = self.take(2)
        else:
            raise ValueError(f"the pickle instruction {name} does not belong in a CIFAR file")
        if name in ("TUPLE", "LIST"):
            self.stack.append(_shallow(values) if name == "TUPLE" else _plain(values))
        elif name in ("APPEND", "APPENDS"):
            self.stack[-1].extend(_plain(values))
        elif name in ("SETITEM", "SETITEMS"):
            self.stack[-1].update(zip(_plain(values[::2]), values[1::2], strict=True))
        elif name == "REDUCE":
            self.stack[-1] = _Call(self.stack[-1].name, values[0])
        else:
            self.stack[-1].state = values[0]

    def take(self, count: int) -> list[Any]:
        cut = len(self.stack) - count
        values, self.stack[cut:] = self.stack[cut:], []
        return values


def _plain(values: list[Any]) -> list[Any]:
    """Return values that hold no others: a list of lists of lists grows without end in a few bytes."""
    if any(isinstance(value, tuple | list | dict | _Call) for value in values):
        raise ValueError("its values are nested deeper than those of a CIFAR file")
    return values


def _shallow(values: list[Any]) -> tuple[Any, ...]:
    """Return a tuple whose tuples hold no others: an array's description needs no more."""
    for value in values:
        _plain([part for part in value if not isinstance(part, _Call)] if isinstance(value, tuple) else [])
        if isinstance(value, list | dict):
            _plain([value])
    return tuple(values)


def parse(data: bytes) -> dict[str, Any]:
    """Return the dictionary in a CIFAR batch file, its arrays of bytes as NumPy arrays."""
    content = _Machine().run(data)
    if not isinstance(content, dict):
        raise ValueError("it holds no dictionary")
    return {_text(key): _array(v) if isinstance(v, _Call) else v for key, v in content.items()}


def read_cifar(path: Path, train: tuple[str, ...], test: str, labels: str) -> Arrays:
    """Read the batches of the archive, or of the folder it unpacks to."""
    with reading(path):
        batches = _members(path, (*train, test))
        parts = [parse(batches[name]) for name in (*train, test)]
        x = [part["data"].reshape(-1, 3, 32, 32) for part in parts]
        y = [np.asarray(part[labels], dtype=np.int64) for part in parts]
    return Arrays(np.concatenate(x[:-1]), np.concatenate(y[:-1]), x[-1], y[-1])


def _members(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    if path.is_dir():
        return {name: (path / name).read_bytes() for name in names}
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            if name in names and (file := archive.extractfile(member)) is not None:
                found[name] = file.read()
    return found


def _array(call: _Call) -> Bytes:
    """Make the array that numpy's pickle describes: (version, shape, dtype, Fortran order, bytes)."""
    if call.name not in _ARRAY or not isinstance(call.state, tuple):
        raise ValueError(f"it asks to call {call.name}, which does not belong in a CIFAR file")
    _, shape, dtype, fortran, data = call.state
    if _text(dtype.arguments[0]) != "u1" or fortran:
        raise ValueError("its array is not one of bytes, row by row")
    raw = data.encode("latin-1") if isinstance(data, str) else data
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
