"""Pickles between this process and its workers, with plain tensors kept apart.

Functions and classes are pickled by name. What has no importable name (a lambda, a class of a notebook) is
sent by value where cloudpickle is installed, else refused with the way out.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fedkeel.engines.processes.mainmodule import import_main, main_module
from fedkeel.errors import ConfigError

_UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)


class Unsendable(Exception):
    """A value cannot be sent to another process."""


class _Apart:
    """Numbers plain tensors in the order they are met, each once, in place of pickling them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)  # type: ignore[call-arg]
        self.tensors: dict[int, tuple[int, Tensor]] = {}

    def persistent_id(self, value: Any) -> int | None:
        """Return a plain tensor's number; anything else, parameters too, is pickled."""
        if type(value) is not Tensor or value.requires_grad or value.device.type != "cpu":
            return None
        return self.tensors.setdefault(id(value), (len(self.tensors), value))[0]


class _ByName(_Apart, pickle.Pickler):
    pass


class _Loader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Sequence[Tensor]) -> None:
        super().__init__(file)
        self._tensors: Sequence[Tensor] = tensors

    def persistent_load(self, pid: Any) -> Tensor:
        tensor: Tensor = self._tensors[pid]
        return tensor

    def find_class(self, module_name: str, global_name: str) -> Any:
        if module_name != "__main__":
            return super().find_class(module_name, global_name)
        import_main()
        try:
            return super().find_class(module_name, global_name)
        except AttributeError:
            raise ConfigError(
                f"a worker process finds no {global_name} in your script: define it at the top level, "
                'above  if __name__ == "__main__":'
            ) from None


def dumps(value: Any) -> tuple[bytes, list[Tensor]]:
    """Return a value's pickle and its plain tensors."""
    try:
        pickled, tensors = _dump(_ByName, value)
    except _UNPICKLABLE as problem:
        reason = str(problem)
    else:
        if b"__main__" not in pickled or main_module():
            return pickled, tensors
        reason = "it is defined in an interactive session"
    try:
        return _dump(_by_value(), value)
    except (ImportError, *_UNPICKLABLE):
        raise Unsendable(reason) from None


def loads(pickled: bytes, tensors: Sequence[Tensor]) -> Any:
    """Return the value of a pickle with the given tensors."""
    return _Loader(io.BytesIO(pickled), tensors).load()


def _dump(pickler: type[Any], value: Any) -> tuple[bytes, list[Tensor]]:
    file = io.BytesIO()
    writer = pickler(file)
    writer.dump(value)
    return file.getvalue(), [tensor for _, tensor in writer.tensors.values()]


def _by_value() -> type[Any]:
    import cloudpickle  # type: ignore[import-untyped]  # noqa: PLC0415  used where it is installed

    class ByValue(_Apart, cloudpickle.Pickler):  # type: ignore[misc]
        pass

    return ByValue
