"""What a recipe measures where plain training is not enough, as values that import nothing heavy.

Each is executed by `fedkeel.papers.reproduce.jobs` and gives rows with a column `round`, as a history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class StabilityCurves:
    """How far runs part that differ in one client: column `distance`, by round, or by local step.

    By steps it is the largest distance between two clients' walks in round `local_round` of the unchanged
    run; `held_out` clients are kept to replace others.
    """

    along: Literal["rounds", "steps"] = "rounds"
    pairs: int = 5
    held_out: int = 5
    local_round: int = 0
    points: int = 1000


@dataclass(frozen=True)
class FeatureCounts:
    """The interaction tensor of Rethinking §3.3, every so many rounds.

    Columns: `features` (clusters), `local_current` (shared by local models and the current global one),
    `current_next`, `current_mean` (before the server's own step), `features@0.3`, `features@0.7` (at other
    correlations).
    """

    every: int = 10
    points: int = 500
    components: int = 20
    gamma_corr: float = 0.5
    gammas: tuple[float, ...] = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class CountedCosts:
    """What a method sends, computes and keeps, against FedAvg; one row.

    Columns: `communication`, `broadcast`, `gradients_ratio`, `storage`, `working`, `seconds_ratio`.
    """

    rounds: int = 10


@dataclass(frozen=True)
class BoundedRun:
    """A run of a wide network with `smooth` or ReLU units beside the bound of Theorem 4.7.

    Columns: `loss`, `bound`, `tightness` (loss / bound), `log_loss` and `log_bound` (decimal logarithms of
    their shares of the first loss), `roughness` (L of pairs of models against that of Hessians).
    """

    smooth: bool = False
    rounds: int = 250
    batch_size: int | None = None
    target: float = 0.1
    units: int = 512


RecipeStudy: TypeAlias = StabilityCurves | FeatureCounts | CountedCosts | BoundedRun
