"""FedSMOO, Sun et al. 2023: dynamic regularisation of the model and of the sharpness-aware shift."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.common.frozen import NonNegative, Positive
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, Sharp, Walk, method
from fedkeel.tensors.vector import Vector, norm, zeros_like


@method
class FedSMOO(Algorithm):
    """Sun et al. 2023: FedDyn whose sharpness-aware shifts are drawn to a global one, s.

    Steps along g(y+e) − h_i + α·(y − x) with e = ρ·q/‖q‖, q = g − μ_i − s, and μ_i ← μ_i + e − s.
    h_i ← h_i − α·D; h ← h − α·share·mean(D); x ← x + mean(D) − h/α; s = ρ·mean(μ)/‖mean(μ)‖.
    """

    alpha: Positive = 0.1
    rho: NonNegative = 0.1

    class Server(NamedTuple):
        """The model, the linear term, the global shift."""

        x: Vector
        h: Vector
        s: Vector

    class Client(NamedTuple):
        """The client's linear term and dual shift."""

        h_i: Vector
        mu_i: Vector

    class Down(NamedTuple):
        """The model and the global shift."""

        x: Vector
        s: Vector

    class Up(NamedTuple):
        """The move and the dual shift."""

        delta: Vector
        mu: Vector

    def init(self, x: Vector) -> Server:
        """Start with zero terms."""
        return self.Server(x, zeros_like(x), zeros_like(x))

    def init_client(self, x0: Vector) -> Client:
        """Start with zero terms."""
        return self.Client(zeros_like(x0), zeros_like(x0))

    def broadcast(self, server: Server) -> Down:
        """Send the model and the shift."""
        return self.Down(server.x, server.s)

    def plan(self, down: Down, client: Client, facts: Facts) -> Plan:
        """Walk as FedDyn with drawn shifts."""
        sharp = Sharp(self.rho, tilt=down.s, dual=client.mu_i)
        return Plan(start=down.x, pull=self.alpha, push=-client.h_i, sharp=sharp)

    def finish(self, walk: Walk, down: Down, client: Client, facts: Facts) -> tuple[Up, Client]:
        """Renew the linear term and keep the dual shift."""
        delta, dual = walk.end - down.x, walk.dual
        assert dual is not None
        return self.Up(delta, dual), self.Client(client.h_i - self.alpha * delta, dual)

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Average, compensate, and renew the global shift."""
        h = server.h - self.alpha * cohort.share * mean.delta
        s = mean.mu * (self.rho / (norm(mean.mu) + 1e-7))
        return self.Server(server.x + mean.delta - h / self.alpha, h, s)
