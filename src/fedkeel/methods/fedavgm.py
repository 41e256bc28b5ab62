"""FedAvgM, Hsu et al. 2019: momentum on the server."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.common.frozen import Fraction, Positive
from fedkeel.core.algorithm import Algorithm, Cohort, method
from fedkeel.tensors.vector import Vector, zeros_like


@method
class FedAvgM(Algorithm):
    """Hsu et al. 2019: momentum on the server.

    v ← βv + mean(D); x ← x + lr·v. Clients know nothing of it.
    """

    beta: Fraction = 0.9
    lr: Positive = 1.0

    class Server(NamedTuple):
        """The model and the server's momentum."""

        x: Vector
        v: Vector

    class Down(NamedTuple):
        """The model alone."""

        x: Vector

    def init(self, x: Vector) -> Server:
        """Start at rest."""
        return self.Server(x, zeros_like(x))

    def broadcast(self, server: Server) -> Down:
        """Send the model alone."""
        return self.Down(server.x)

    def aggregate(self, server: Server, mean: Algorithm.Up, cohort: Cohort) -> Server:
        """Step along the accumulated moves."""
        v = self.beta * server.v + mean.delta
        return self.Server(server.x + self.lr * v, v)
