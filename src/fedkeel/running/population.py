"""Which clients take part in a round, and with which weight."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from fedkeel.algorithm import Cohort
from fedkeel.data.federation import Federation
from fedkeel.errors import ConfigError
from fedkeel.streams import Stream

Sampling = Literal["fixed", "bernoulli"]
Weighting = Literal["uniform", "samples"]


class Population(NamedTuple):
    """Draws cohorts. `size` clients of `clients`, exactly ("fixed") or on average ("bernoulli").

    `whole` is the weight of all clients, summed once: a round costs what its cohort costs.
    """

    clients: int
    size: int
    sampling: Sampling
    weights: np.ndarray | None
    whole: float
    seed: int

    def draw(self, round: int) -> list[int]:
        """Return a round's clients in drawn order; never empty, and never O(population)."""
        rng = Stream(self.seed).branch("cohort", round).numpy()
        size = self.size
        if self.sampling == "bernoulli":
            size = 0
            while size == 0:  # an empty cohort is drawn again
                size = int(rng.binomial(self.clients, self.size / self.clients))
        return [int(client) for client in rng.choice(self.clients, size=size, replace=False)]

    def weigh(self, clients: list[int]) -> list[float]:
        """Return the weights of clients in the mean."""
        return [1.0] * len(clients) if self.weights is None else [float(self.weights[i]) for i in clients]

    def cohort(self, round: int, rounds: int, clients: list[int]) -> Cohort:
        """Describe the accepted clients to the server."""
        share = sum(self.weigh(clients)) / self.whole
        return Cohort(round, rounds, len(clients), share, Stream(self.seed).branch("server", round))


def population(
    federation: Federation, cohort: int | float, sampling: Sampling, weighting: Weighting, seed: int
) -> Population:
    """Check a cohort (a count, or a fraction of the clients) and return what draws it."""
    clients = len(federation)
    if isinstance(cohort, bool) or not isinstance(cohort, int | float):
        raise ConfigError(f"cohort = {cohort!r}: give a count (int) or a fraction of the clients (float)")
    if isinstance(cohort, float) and not 0 < cohort <= 1:
        raise ConfigError(f"cohort = {cohort}: a fraction lies above 0 and at most at 1; a count is an int")
    size = max(1, round(cohort * clients)) if isinstance(cohort, float) else cohort
    if not 1 <= size <= clients:
        raise ConfigError(f"cohort = {cohort}: there are {clients} clients, so give 1 to {clients}")
    for name, given, known in (
        ("sampling", sampling, ("fixed", "bernoulli")),
        ("weighting", weighting, ("uniform", "samples")),
    ):
        if given not in known:
            raise ConfigError(f"{name} = {given!r}: choose one of {', '.join(known)}")
    weights = federation.sizes.double().numpy() if weighting == "samples" else None
    whole = float(clients) if weights is None else float(weights.sum())
    return Population(clients, size, sampling, weights, whole, seed)
