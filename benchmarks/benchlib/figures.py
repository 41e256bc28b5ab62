"""The figures to reach, as data: which ratio, of what, how large."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchlib.stats import Ratio, ratio
from benchlib.versus import BARE, BARE_KEPT, SERIAL

BEST = "fedkeel"


class Figure(NamedTuple):
    """A ratio of seconds per round that should be at least, or at most, so large."""

    workload: str
    above: str
    below: str
    target: float
    at_least: bool = True

    @property
    def text(self) -> str:
        """Return the figure in words."""
        sign = "≥" if self.at_least else "≤"
        return f"{self.workload}: {self.above} / {self.below} {sign} {self.target:g}"


VERSUS = (
    Figure("logistic", BARE, BEST, 3.0),
    Figure("logistic", "pfl", BEST, 4.0),
    Figure("logistic", "flwr", BEST, 50.0),
    Figure("logistic50", BARE, BEST, 4.0),
    Figure("cnn", BARE, BEST, 1.0),
    Figure("cnn", "pfl", BEST, 1.25),
    Figure("cnn", "flwr", BEST, 2.5),
    Figure("lstm", BARE, BEST, 1.0),
    Figure("resnet", BARE, BEST, 1.0),
    Figure("cnn", SERIAL, BARE, 1.03, at_least=False),
    Figure("resnet", SERIAL, BARE, 1.03, at_least=False),
    Figure("cnn", SERIAL, BARE_KEPT, 1.03, at_least=False),
    Figure("resnet", SERIAL, BARE_KEPT, 1.03, at_least=False),
)
_CHEAP = ("FedInit", "FedProx", "FedAvgM", "FedAdam", "FedCM", "FedANAG", "FedACG", "FedSAGD")
METHODS = (
    *(Figure("cnn", name, "FedAvg", 1.03, at_least=False) for name in _CHEAP),
    *(Figure("cnn", name, "FedAvg", 1.05, at_least=False) for name in ("SCAFFOLD", "FedDyn", "FedLNAG")),
    Figure("cnn", "FedSAM", "FedAvg", 2.05, at_least=False),
)


def compare(result: dict[str, Any], above: str, below: str = BEST) -> Ratio | None:
    """Return a ratio of a workload's result, from the phase in which both took part."""
    above, below = (result["best"] if name == BEST else name for name in (above, below))
    for phase in ("pairs", "flower", "screening"):
        columns = result.get(phase, {})
        if above in columns and below in columns:
            return ratio(columns[above], columns[below])
    return None
