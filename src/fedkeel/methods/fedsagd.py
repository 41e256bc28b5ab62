"""FedSAGD, submitted to ICLR 2026: global momentum and a hybrid proximal term, for stability and speed."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.common.frozen import Fraction, NonNegative, Positive
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, Walk, method
from fedkeel.tensors.records import Nothing
from fedkeel.tensors.vector import Vector, zeros_like


@method
class FedSAGD(Algorithm):
    """Submitted to ICLR 2026: global momentum in every local step, kept stable by a proximal and an L2 term.

    Steps along g + β·v + λ·(y − x) + μ·y; v ← β/(1+β)·v − mean(D)/((1+β)·length); x ← x + lr·mean(D).
    """

    beta: Fraction = 0.9
    lam: NonNegative = 0.01
    mu: NonNegative = 0.001
    lr: Positive = 1.0

    class Server(NamedTuple):
        """The model and the global momentum."""

        x: Vector
        v: Vector

    class Up(NamedTuple):
        """The move and the sum of the rates."""

        delta: Vector
        length: Vector

    def init(self, x: Vector) -> Server:
        """Start without momentum."""
        return self.Server(x, zeros_like(x))

    def plan(self, down: Server, client: Nothing, facts: Facts) -> Plan:
        """Push along the momentum, pull towards the model and towards zero."""
        return Plan(start=down.x, push=self.beta * down.v, pull=self.lam, decay=self.mu)

    def finish(self, walk: Walk, down: Server, client: Nothing, facts: Facts) -> tuple[Up, Nothing]:
        """Send the move and its length."""
        return self.Up(walk.end - down.x, walk.length), client

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Step along the mean move and recover the momentum from it."""
        v = self.beta / (1 + self.beta) * server.v - mean.delta / ((1 + self.beta) * mean.length)
        return self.Server(server.x + self.lr * mean.delta, v)
