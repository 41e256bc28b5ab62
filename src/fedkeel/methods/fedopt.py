"""FedAdam, FedYogi, FedAdagrad, Reddi et al. 2021: the mean move as a gradient for an adaptive server."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from torch import full_like, sign, sqrt

from fedkeel.common.frozen import Fraction, NonNegative, Positive, added
from fedkeel.core.algorithm import Algorithm, Cohort, method
from fedkeel.tensors.vector import Vector, scalar_like, zeros_like


@method
class FedAdam(Algorithm):
    """Reddi et al. 2021: Adam on the server, with the mean move as its gradient.

    m ← β1·m + (1−β1)·mean(D); v ← β2·v + (1−β2)·mean(D)²; x ← x + lr·m/(√v + τ).
    v starts at τ² and there is no bias correction, as in the paper's Algorithm 2. `v0` gives v another start
    (FL-Simulator and Flower begin at 0). `bias_correction=True` takes m/(1−β1^t) and v/(1−β2^t), t the rounds
    from 1 on: with v0 = 0 that is torch.optim.Adam with τ as its eps.
    """

    lr: Positive = 0.1
    beta1: Fraction = 0.9
    beta2: Fraction = 0.99
    tau: Positive = 1e-3
    v0: NonNegative | None = added(None)
    bias_correction: bool = added(False)

    class Server(NamedTuple):
        """The model, the first and the second moment of the mean moves, the rounds where they are needed."""

        x: Vector
        m: Vector
        v: Vector
        t: Vector | None = None

    class Down(NamedTuple):
        """The model alone."""

        x: Vector

    def init(self: _AdaptiveServer, x: Vector) -> Server:
        """Start with v = τ², or as `v0` says."""
        v0 = self.tau**2 if self.v0 is None else self.v0
        t = scalar_like(x, 0.0) if self.bias_correction else None
        return FedAdam.Server(x, zeros_like(x), full_like(x, v0), t)

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

    v ← v − (1−β2)·mean(D)²·sign(v − mean(D)²). `v0` and `bias_correction` are those of FedAdam.
    """

    lr: Positive = 0.1
    beta1: Fraction = 0.9
    beta2: Fraction = 0.99
    tau: Positive = 1e-3
    v0: NonNegative | None = added(None)
    bias_correction: bool = added(False)

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

    v ← v + mean(D)². `beta2` has no effect: it is taken so that the three are interchangeable. `v0` is that
    of FedAdam; `bias_correction` divides m alone, because a sum has no bias.
    """

    lr: Positive = 0.1
    beta1: Fraction = 0.0
    beta2: Fraction = 0.99
    tau: Positive = 1e-3
    v0: NonNegative | None = added(None)
    bias_correction: bool = added(False)

    init = FedAdam.init
    broadcast = FedAdam.broadcast

    def aggregate(self, server: FedAdam.Server, mean: Algorithm.Up, cohort: Cohort) -> FedAdam.Server:
        """Sum the squared moves."""
        return _step(self, server, mean.delta, server.v + mean.delta**2)


_AdaptiveServer: TypeAlias = FedAdam | FedYogi | FedAdagrad


def _step(knobs: _AdaptiveServer, server: FedAdam.Server, delta: Vector, v: Vector) -> FedAdam.Server:
    """Return m ← β1·m + (1−β1)·D and x ← x + lr·m/(√v + τ), both moments corrected where that is asked."""
    m = knobs.beta1 * server.m + (1 - knobs.beta1) * delta
    if server.t is None:
        return FedAdam.Server(server.x + knobs.lr * m / (sqrt(v) + knobs.tau), m, v)
    t = server.t + 1
    mean = m / (1 - knobs.beta1**t)
    square = v if isinstance(knobs, FedAdagrad) else v / (1 - knobs.beta2**t)
    return FedAdam.Server(server.x + knobs.lr * mean / (sqrt(square) + knobs.tau), m, v, t)
