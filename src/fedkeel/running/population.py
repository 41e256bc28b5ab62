"""Which clients take part in a round, and with which weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedkeel.core.algorithm import Cohort
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.streams import Stream


class Population(NamedTuple):
    """Draws cohorts. `size` clients of `clients`, exactly or on average (`bernoulli`).

    `whole` is the weight of all clients, summed once: a round costs what its cohort costs.
    """

    clients: int
    size: int
    bernoulli: bool
    weights: np.ndarray | None
    whole: float
    seed: int

    def draw(self, round: int) -> list[int]:
        """Return a round's clients in drawn order; never empty, and never O(population)."""
        rng = self._rng(round)
        size = self.size
        if self.bernoulli:
            size = 0
            while size == 0:  # an empty cohort is drawn again
                size = self._number(rng)
        return [int(client) for client in rng.choice(self.clients, size=size, replace=False)]

    def weigh(self, clients: list[int]) -> list[float]:
        """Return the weights of clients in the mean."""
        return [1.0] * len(clients) if self.weights is None else [float(self.weights[i]) for i in clients]

    def cohort(self, round: int, rounds: int, clients: list[int]) -> Cohort:
        """Describe the accepted clients to the server."""
        share = sum(self.weigh(clients)) / self.whole
        stream = Stream(self.seed).branch("server", round)
        return Cohort(round, rounds, len(clients), share, stream, self.size, self.redrawn(round))

    def redrawn(self, round: int) -> bool:
        """Tell whether nobody was drawn at first, and a round's cohort was drawn again."""
        return self.bernoulli and self._number(self._rng(round)) == 0

    def _rng(self, round: int) -> np.random.Generator:
        return Stream(self.seed).branch("cohort", round).numpy()

    def _number(self, rng: np.random.Generator) -> int:
        """Draw how many of the clients take part, each with the same probability."""
        return int(rng.binomial(self.clients, self.size / self.clients))

    @classmethod
    def of(cls, settings: RunSettings) -> Population:
        """Return what draws the cohorts of a run."""
        clients = len(settings.federation)
        weights = None if settings.uniform_weights else settings.federation.sizes.double().numpy()
        whole = float(clients) if weights is None else float(weights.sum())
        return cls(
            clients, settings.cohort_size, settings.sampling == "bernoulli", weights, whole, settings.seed
        )
