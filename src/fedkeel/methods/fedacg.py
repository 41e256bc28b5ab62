"""FedACG, Kim et al. 2024: broadcast a lookahead model."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.common.frozen import Fraction, NonNegative
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, method
from fedkeel.tensors.records import Nothing
from fedkeel.tensors.vector import Vector, zeros_like


@method
class FedACG(Algorithm):
    """Kim et al. 2024: the server sends z = x + λm, and clients stay near it.

    Start and anchor are z, pull = β, D = end − z; m ← λm + mean(D); x ← x + m, which is the mean end model.
    x is evaluated, not z.
    """

    lam: Fraction = 0.85
    beta: NonNegative = 2e-3

    class Server(NamedTuple):
        """The model and the momentum."""

        x: Vector
        m: Vector

    class Down(NamedTuple):
        """The lookahead model, sent instead of the model."""

        x: Vector

    def init(self, x: Vector) -> Server:
        """Start without momentum."""
        return self.Server(x, zeros_like(x))

    def broadcast(self, server: Server) -> Down:
        """Send the lookahead model."""
        return self.Down(server.x + self.lam * server.m)

    def plan(self, down: Down, client: Nothing, facts: Facts) -> Plan:
        """Pull towards the lookahead model."""
        return Plan(start=down.x, pull=self.beta)

    def aggregate(self, server: Server, mean: Algorithm.Up, cohort: Cohort) -> Server:
        """Accumulate the moves."""
        m = self.lam * server.m + mean.delta
        return self.Server(server.x + m, m)
