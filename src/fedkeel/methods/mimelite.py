"""MimeLite, Karimireddy et al. 2021: server momentum applied, but not changed, in the local steps."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.common.frozen import Fraction, Positive
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, Walk, method
from fedkeel.tensors.records import Nothing
from fedkeel.tensors.vector import Vector, zeros_like


@method
class MimeLite(Algorithm):
    """Karimireddy et al. 2021: the server's momentum steers the local steps and is renewed once per round.

    Steps along (1−β)·g + β·m; m ← β·m + (1−β)·mean(full gradients at x). The full gradient is taken over all
    of a client's samples: the loss alone, no augmentation, clipping or weight decay.
    """

    beta: Fraction = 0.9
    lr: Positive = 1.0

    class Server(NamedTuple):
        """The model and the momentum."""

        x: Vector
        m: Vector

    class Up(NamedTuple):
        """The move and the full gradient at the broadcast model."""

        delta: Vector
        gradient: Vector

    def init(self, x: Vector) -> Server:
        """Start without momentum."""
        return self.Server(x, zeros_like(x))

    def plan(self, down: Server, client: Nothing, facts: Facts) -> Plan:
        """Mix the gradient with the momentum, and ask for the full gradient."""
        return Plan(start=down.x, gain=1 - self.beta, push=self.beta * down.m, full_gradient=True)

    def finish(self, walk: Walk, down: Server, client: Nothing, facts: Facts) -> tuple[Up, Nothing]:
        """Send the move and the full gradient."""
        assert walk.full_gradient is not None  # the plan asks for it
        return self.Up(walk.end - down.x, walk.full_gradient), client

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Step along the mean move and renew the momentum."""
        m = self.beta * server.m + (1 - self.beta) * mean.gradient
        return self.Server(server.x + self.lr * mean.delta, m)
