"""The methods: one paper a file, and the table of all of them.

A new method is a file here and a row in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedkeel.algorithm import Algorithm
from fedkeel.errors import ConfigError
from fedkeel.methods.fedavg import FedAvg
from fedkeel.methods.feddyn import FedDyn
from fedkeel.methods.fedprox import FedProx
from fedkeel.methods.relaxed import Adaptive, Decayed, FedInit, Relaxed
from fedkeel.methods.scaffold import SCAFFOLD
from fedkeel.methods.sharp import Sharpened
from fedkeel.methods.stages import Stages, stages

METHODS: tuple[Callable[..., Algorithm], ...] = (FedAvg, FedProx, SCAFFOLD, FedDyn, FedInit)


def relaxed(inner: Algorithm | Stages, beta: Any = 0.1, **options: Any) -> Algorithm | Stages:
    """Start each client away from its last end: relaxed initialisation on any method or on each stage.

    Options: `first`, `aggregate`, `gamma`; see `Relaxed`.
    """
    if "aggregate" in options:
        options["origin"] = options.pop("aggregate")
    return _on_each(inner, lambda one: Relaxed(one, beta, **options))


def sharp(inner: Algorithm | Stages, rho: float = 0.1) -> Algorithm | Stages:
    """Take sharpness-aware steps in any method or in each stage."""
    return _on_each(inner, lambda one: Sharpened(one, rho))


def _on_each(inner: Algorithm | Stages, wrap: Callable[[Algorithm], Algorithm]) -> Algorithm | Stages:
    if isinstance(inner, Stages):
        parts = tuple(part._replace(method=wrap(part.method)) for part in inner.parts)
        return inner._replace(parts=parts)
    if not isinstance(inner, Algorithm):
        raise ConfigError(f"{inner!r} is not a method: give one, as in relaxed(SCAFFOLD(), beta=0.1)")
    return wrap(inner)


__all__ = [
    "METHODS",
    "SCAFFOLD",
    "Adaptive",
    "Decayed",
    "FedAvg",
    "FedDyn",
    "FedInit",
    "FedProx",
    "Relaxed",
    "Sharpened",
    "Stages",
    "relaxed",
    "sharp",
    "stages",
]
