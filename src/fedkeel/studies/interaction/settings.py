"""The settings of the study: when snapshots are taken, and how features are compared."""

from __future__ import annotations

from collections.abc import Sequence

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Count, Number, frozen
from fedkeel.studies.interaction.tensor import Array, Entries, Interaction, check_correlation, interaction

GAMMAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@frozen
class FeatureSettings:
    """When snapshots are taken, on how many test points, and the arguments of `interaction`.

    `gammas` are further values of γ_corr, for which the clusters are counted.
    """

    every: Count = 10
    points: Count = 500
    components: Count = 20
    gamma_corr: Number = 0.5
    centre: bool = False
    gammas: tuple[Number, ...] = GAMMAS
    entries: Entries = "absolute"

    def __post_init__(self) -> None:
        for gamma in (self.gamma_corr, *self.gammas):
            check_correlation(gamma)

    def rounds(self, rounds: int) -> range:
        """Return after which of a run's rounds a snapshot is taken."""
        if self.every > rounds:
            raise ConfigError(
                f"interaction: every = {self.every}, but the run has {rounds} rounds: give 1 to {rounds}"
            )
        return range(self.every, rounds + 1, self.every)

    def tensor(self, features: Sequence[Array], gamma_corr: float) -> Interaction:
        """Return the interaction tensor of models' features at a given γ_corr."""
        return interaction(
            features,
            components=self.components,
            gamma_corr=gamma_corr,
            centre=self.centre,
            entries=self.entries,
        )
