"""The methods: one paper a file, and the table of all of them.

A new method is a file here and a row in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from fedkeel.algorithm import Algorithm
from fedkeel.errors import ConfigError
from fedkeel.methods.fedacg import FedACG
from fedkeel.methods.fedavg import FedAvg
from fedkeel.methods.fedavgm import FedAvgM
from fedkeel.methods.fedcm import FedCM
from fedkeel.methods.feddyn import FedDyn
from fedkeel.methods.fednova import FedNova
from fedkeel.methods.fedntd import FedNTD
from fedkeel.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from fedkeel.methods.fedprox import FedProx
from fedkeel.methods.fedsagd import FedSAGD
from fedkeel.methods.fedsam import FedSAM
from fedkeel.methods.fedsmoo import FedSMOO
from fedkeel.methods.fedspeed import FedSpeed
from fedkeel.methods.mimelite import MimeLite
from fedkeel.methods.moon import MOON
from fedkeel.methods.nesterov import FedANAG, FedLNAG
from fedkeel.methods.relaxed import Adaptive, Decayed, FedInit, Relaxed
from fedkeel.methods.scaffold import SCAFFOLD
from fedkeel.methods.sharp import FedGamma, MoFedSAM, Sharpened
from fedkeel.methods.stages import Stages, stages

METHODS: tuple[Callable[..., Algorithm], ...] = (
    FedAvg,
    FedProx,
    FedAvgM,
    FedAdam,
    FedYogi,
    FedAdagrad,
    SCAFFOLD,
    FedDyn,
    FedCM,
    FedSAM,
    MimeLite,
    FedLNAG,
    FedANAG,
    FedACG,
    FedSAGD,
    FedNova,
    FedNTD,
    MOON,
    FedSpeed,
    FedSMOO,
    FedInit,
    MoFedSAM,
    FedGamma,
)


def relaxed(
    inner: Algorithm | Stages,
    beta: float | Decayed | Adaptive = 0.1,
    first: Literal["initial", "none"] = "initial",
    aggregate: Literal["model", "walk"] = "model",
    gamma: Literal["walk", "end"] = "walk",
) -> Algorithm | Stages:
    """Start each client away from its last end: relaxed initialisation on any method or on each stage.

    The arguments are described in `Relaxed`.
    """
    if aggregate not in ("model", "walk"):
        raise ConfigError(f"relaxed: aggregate = {aggregate!r}: choose one of model, walk")
    return _on_each(inner, lambda one: Relaxed(one, beta, first, aggregate, gamma))


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
    "MOON",
    "SCAFFOLD",
    "Adaptive",
    "Decayed",
    "FedACG",
    "FedANAG",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDyn",
    "FedGamma",
    "FedInit",
    "FedLNAG",
    "FedNTD",
    "FedNova",
    "FedProx",
    "FedSAGD",
    "FedSAM",
    "FedSMOO",
    "FedSpeed",
    "FedYogi",
    "MimeLite",
    "MoFedSAM",
    "Relaxed",
    "Sharpened",
    "Stages",
    "relaxed",
    "sharp",
    "stages",
]
