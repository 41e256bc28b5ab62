"""FedCM, Xu et al. 2021: client-level momentum."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.common.frozen import Positive, UnitInterval
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, Walk, method
from fedkeel.tensors.records import Nothing
from fedkeel.tensors.vector import Vector, zeros_like


@method
class FedCM(Algorithm):
    """Xu et al. 2021: every local step mixes the gradient with last round's mean direction.

    Steps along α·g + (1−α)·M; M ← −mean(D)/length with length the mean of the clients' summed rates, so
    that decayed rates and ragged clients are exact. The effective L2 is weight_decay/α.
    """

    alpha: UnitInterval = 0.1
    lr: Positive = 1.0

    class Server(NamedTuple):
        """The model and the mean direction of the last round."""

        x: Vector
        M: Vector

    class Up(NamedTuple):
        """The move and the sum of the rates."""

        delta: Vector
        length: Vector

    def init(self, x: Vector) -> Server:
        """Start without a direction."""
        return self.Server(x, zeros_like(x))

    def plan(self, down: Server, client: Nothing, facts: Facts) -> Plan:
        """Mix the gradient with the mean direction."""
        return Plan(start=down.x, gain=self.alpha, push=(1 - self.alpha) * down.M)

    def finish(self, walk: Walk, down: Server, client: Nothing, facts: Facts) -> tuple[Up, Nothing]:
        """Send the move and its length."""
        return self.Up(walk.end - down.x, walk.length), client

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Step along the mean move and remember its direction."""
        return self.Server(server.x + self.lr * mean.delta, -mean.delta / mean.length)
