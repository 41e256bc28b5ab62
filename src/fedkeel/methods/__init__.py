"""The methods: one paper per file, and the table of all of them.

A new method is a file here and a row in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable

from fedkeel.common.references import add_references
from fedkeel.core.algorithm import Algorithm
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
from fedkeel.methods.private import Private, private
from fedkeel.methods.relaxed import Adaptive, Decayed, FedInit, Relaxed, relaxed
from fedkeel.methods.scaffold import SCAFFOLD
from fedkeel.methods.sharp import FedGamma, MoFedSAM, Sharpened, sharp
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
add_references("methods", *METHODS)
add_references(
    "plug-ins", Relaxed, relaxed, Decayed, Adaptive, Sharpened, sharp, Stages, stages, private, Private
)

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
    "Private",
    "Relaxed",
    "Sharpened",
    "Stages",
    "private",
    "relaxed",
    "sharp",
    "stages",
]
