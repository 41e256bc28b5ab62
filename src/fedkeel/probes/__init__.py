"""Probes: online diagnostics that show why a method works. `docs/diagnostics.md` lists their columns."""

from collections.abc import Callable

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.references import add_references
from fedkeel.probes.base import ClientView, Probe, RoundView
from fedkeel.probes.cosine import Cosine
from fedkeel.probes.costs import Costs
from fedkeel.probes.divergence import Divergence
from fedkeel.probes.diversity import Diversity
from fedkeel.probes.losses import ClientAccuracy, ExcessRisk, Losses
from fedkeel.probes.movement import Clipping, Drift, Layers, Update
from fedkeel.probes.switching import Switching, SwitchingRule

PROBES: tuple[Callable[..., Probe], ...] = (
    Update,
    Costs,
    Divergence,
    Drift,
    Clipping,
    Diversity,
    Cosine,
    Losses,
    ExcessRisk,
    ClientAccuracy,
    Layers,
    Switching,
)
add_references("probes", *PROBES)
add_references("plug-ins", SwitchingRule)
DEFAULT: tuple[Probe, ...] = (Update(), Costs())  # nearly free, so always on

__all__ = [
    "DEFAULT",
    "PROBES",
    "ClientAccuracy",
    "ClientView",
    "Clipping",
    "Cosine",
    "Costs",
    "Divergence",
    "Diversity",
    "Drift",
    "ExcessRisk",
    "HistoryColumn",
    "Layers",
    "Losses",
    "Probe",
    "RoundView",
    "Switching",
    "SwitchingRule",
    "Update",
]
