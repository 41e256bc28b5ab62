"""FedACG, Kim et al. 2024: broadcast a lookahead model."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.algorithm import Algorithm, Cohort, Plan, method
from fedkeel.frozen import Fraction, NonNegative
from fedkeel.records import Record
from fedkeel.vector import Vector, zeros_like


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
        """The lookahead model, in the place of the model."""

        x: Vector

    def init(self, x: Vector) -> Record:
        """Start without momentum."""
        return self.Server(x, zeros_like(x))

    def broadcast(self, server: Record) -> Record:
        """Send the lookahead model."""
        return self.Down(server.x + self.lam * server.m)

    def plan(self, down: Record, client: Record) -> Plan:
        """Pull towards the lookahead model."""
        return Plan(start=down.x, pull=self.beta)

    def aggregate(self, server: Record, mean: Record, cohort: Cohort) -> Record:
        """Accumulate the moves."""
        m = self.lam * server.m + mean.delta
        return self.Server(server.x + m, m)
