"""Stability: how far two runs drift apart whose federations differ in one client, or in one sample.

FedSAGD, Definition 3.4 and Figures 1–2; with one sample, FedInit's Definition 11. Both runs have the same
seed, so the same first model, cohort positions and (with clients of one size) minibatch order.

    found = stability(settings, pairs=5, directory="runs/stability")
    found.mean[-1], found.local[-1].distances[-1], found.losses[-1].absolute
"""

import sys

from fedkeel.common.references import add_references
from fedkeel.studies.stability.local import LocalDistances, local_distances
from fedkeel.studies.stability.losses import LossDifference
from fedkeel.studies.stability.replacement import (
    Replaced,
    ReplacedClient,
    candidates,
    with_replacement,
)
from fedkeel.studies.stability.study import Stability, stability

__all__ = [
    "LocalDistances",
    "LossDifference",
    "Replaced",
    "ReplacedClient",
    "Stability",
    "candidates",
    "local_distances",
    "stability",
    "with_replacement",
]

add_references("studies", sys.modules[__name__])
