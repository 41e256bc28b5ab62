"""FedLNAG (Yu et al. 2019), FedANAG (Zhang et al. 2025): Nesterov momentum of clients or of the server."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.common.frozen import Fraction, Positive, added
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Momentum, Plan, Walk, method
from fedkeel.tensors.records import Nothing
from fedkeel.tensors.vector import Vector, zeros_like


@method
class FedLNAG(Algorithm):
    """Yu et al. 2019: local Nesterov momentum whose buffer is averaged like the model.

    b ← βb + dir, y ← y − lr·(dir + βb), starting from the mean buffer m of the last round; weight decay is
    part of dir. `carry=False` starts each walk with an empty buffer and sends nothing more than FedAvg.
    `damped=True` is the form of FedSAGD's Appendix C.5, b ← βb + (1−β)·dir, y ← y − lr·((1−β)·dir + βb): the
    walk of the plain form at the rate lr·(1−β), with a buffer that is a running mean of directions. C.5
    prints the point of the gradient as x − βm, without the rate; we read x − lr·βm, and y is that point.
    """

    beta: Fraction = 0.9
    carry: bool = True
    damped: bool = added(False)

    class Server(NamedTuple):
        """The model and the mean buffer, where it is carried."""

        x: Vector
        m: Vector | None

    class Up(NamedTuple):
        """The move and the buffer at the end, where it is carried."""

        delta: Vector
        buffer: Vector | None

    def init(self, x: Vector) -> Server:
        """Start with an empty buffer."""
        return self.Server(x, zeros_like(x) if self.carry else None)

    def plan(self, down: Server, client: Nothing, facts: Facts) -> Plan:
        """Walk with momentum; β = 0 is a plain walk, to the bit."""
        if not self.beta:
            return Plan(start=down.x)
        return Plan(
            start=down.x,
            momentum=Momentum(self.beta, nesterov=True, buffer=down.m, damped=self.damped),
        )

    def finish(self, walk: Walk, down: Server, client: Nothing, facts: Facts) -> tuple[Up, Nothing]:
        """Send the move and the buffer."""
        buffer = walk.buffer if self.beta else down.m
        return self.Up(walk.end - down.x, buffer if self.carry else None), client

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Average models and buffers."""
        return self.Server(server.x + mean.delta, mean.buffer)


@method
class FedANAG(Algorithm):
    """Zhang et al. 2025: Nesterov acceleration with a momentum that the server recovers from the moves.

    Steps along (1+β)·g + β²·m; m ← β/(1+β)·m − mean(D)/((1+β)·length). With one step and no weight decay m is
    the exact Nesterov buffer βm + mean gradient. The effective L2 is weight_decay/(1+β).
    """

    beta: Fraction = 0.9
    lr: Positive = 1.0

    class Server(NamedTuple):
        """The model and the momentum."""

        x: Vector
        m: Vector

    class Up(NamedTuple):
        """The move and the sum of the rates."""

        delta: Vector
        length: Vector

    def init(self, x: Vector) -> Server:
        """Start without momentum."""
        return self.Server(x, zeros_like(x))

    def plan(self, down: Server, client: Nothing, facts: Facts) -> Plan:
        """Look ahead along the momentum."""
        return Plan(start=down.x, gain=1 + self.beta, push=self.beta**2 * down.m)

    def finish(self, walk: Walk, down: Server, client: Nothing, facts: Facts) -> tuple[Up, Nothing]:
        """Send the move and its length."""
        return self.Up(walk.end - down.x, walk.length), client

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Step along the mean move and recover the momentum from it."""
        m = self.beta / (1 + self.beta) * server.m - mean.delta / ((1 + self.beta) * mean.length)
        return self.Server(server.x + self.lr * mean.delta, m)
