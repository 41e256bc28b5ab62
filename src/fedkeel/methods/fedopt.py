"""FedAdam, FedYogi, FedAdagrad, Reddi et al. 2021: the mean move as a gradient for an adaptive server."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from torch import full_like, sign, sqrt

from fedkeel.algorithm import Algorithm, Cohort, method
from fedkeel.frozen import Fraction, Positive
from fedkeel.vector import Vector, zeros_like


@method
class FedAdam(Algorithm):
    """Reddi et al. 2021: Adam on the server, with the mean move as its gradient.

    m ← β1·m + (1−β1)·mean(D); v ← β2·v + (1−β2)·mean(D)²; x ← x + lr·m/(√v + τ).
    v starts at τ² and there is no bias correction, as in the paper's Algorithm 2.
    """

    lr: Positive = 0.1
    beta1: Fraction = 0.9
    beta2: Fraction = 0.99
    tau: Positive = 1e-3

    class Server(NamedTuple):
        """The model, the first and the second moment of the mean moves."""

        x: Vector
        m: Vector
        v: Vector

    class Down(NamedTuple):
        """The model alone."""

        x: Vector

    def init(self: _AdaptiveServer, x: Vector) -> Server:
        """Start with v = τ²."""
        return FedAdam.Server(x, zeros_like(x), full_like(x, self.tau**2))

    def broadcast(self: _AdaptiveServer, server: Server) -> Down:
        """Send the model alone."""
        return FedAdam.Down(server.x)

    def aggregate(self, server: Server, mean: Algorithm.Up, cohort: Cohort) -> Server:
        """Average the squared moves exponentially."""
        v = self.beta2 * server.v + (1 - self.beta2) * mean.delta**2
        return _step(self, server, mean.delta, v)


@method
class FedYogi(Algorithm):
    """Reddi et al. 2021: as FedAdam, with a second moment that changes by addition.

    v ← v − (1−β2)·mean(D)²·sign(v − mean(D)²).
    """

    lr: Positive = 0.1
    beta1: Fraction = 0.9
    beta2: Fraction = 0.99
    tau: Positive = 1e-3

    init = FedAdam.init
    broadcast = FedAdam.broadcast

    def aggregate(self, server: FedAdam.Server, mean: Algorithm.Up, cohort: Cohort) -> FedAdam.Server:
        """Let the second moment drift towards the squared move."""
        square = mean.delta**2
        v = server.v - (1 - self.beta2) * square * sign(server.v - square)
        return _step(self, server, mean.delta, v)


@method
class FedAdagrad(Algorithm):
    """Reddi et al. 2021: as FedAdam, with the sum of all squared moves.

    v ← v + mean(D)². `beta2` has no effect: it is taken so that the three are interchangeable.
    """

    lr: Positive = 0.1
    beta1: Fraction = 0.0
    beta2: Fraction = 0.99
    tau: Positive = 1e-3

    init = FedAdam.init
    broadcast = FedAdam.broadcast

    def aggregate(self, server: FedAdam.Server, mean: Algorithm.Up, cohort: Cohort) -> FedAdam.Server:
        """Sum the squared moves."""
        return _step(self, server, mean.delta, server.v + mean.delta**2)


_AdaptiveServer: TypeAlias = FedAdam | FedYogi | FedAdagrad


def _step(knobs: _AdaptiveServer, server: FedAdam.Server, delta: Vector, v: Vector) -> FedAdam.Server:
    """Return m ← β1·m + (1−β1)·D, x ← x + lr·m/(√v + τ), without bias correction."""
    m = knobs.beta1 * server.m + (1 - knobs.beta1) * delta
    return FedAdam.Server(server.x + knobs.lr * m / (sqrt(v) + knobs.tau), m, v)
