"""FedDyn, Acar et al. 2021: a linear and a proximal term align the clients' optima with the global one."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.algorithm import Algorithm, Cohort, Facts, Plan, Walk, method
from fedkeel.frozen import Positive
from fedkeel.vector import Vector, zeros_like


@method
class FedDyn(Algorithm):
    """Acar et al. 2021: dynamic regularisation by a linear and a proximal term.

    Steps along g − h_i + α·(y − x); h_i ← h_i − α·D. The server keeps h ← h − α·share·mean(D), the mean
    model γ = x + mean(D), and sends θ = x = γ − h/α. Both are evaluated: x is θ, the other is gamma.
    `regularize=False` (Rethinking's "w/o Reg") walks plainly, `compensate=False` ("w/o h") sends γ.
    """

    alpha: Positive = 0.1
    regularize: bool = True
    compensate: bool = True

    class Server(NamedTuple):
        """What is sent, the sum of the linear terms, the mean end model."""

        x: Vector
        h: Vector
        gamma: Vector

    class Client(NamedTuple):
        """The client's linear term."""

        h_i: Vector

    class Down(NamedTuple):
        """The model alone."""

        x: Vector

    def init(self, x: Vector) -> Server:
        """Start with a zero linear term."""
        return self.Server(x, zeros_like(x), x)

    def enlist(self, x0: Vector) -> Client:
        """Start with a zero linear term."""
        return self.Client(zeros_like(x0))

    def broadcast(self, server: Server) -> Down:
        """Send the model alone."""
        return self.Down(server.x)

    def plan(self, down: Down, client: Client, facts: Facts) -> Plan:
        """Push by −h_i and pull towards the broadcast model."""
        if not self.regularize:
            return Plan(start=down.x)
        return Plan(start=down.x, push=-client.h_i, pull=self.alpha)

    def finish(self, walk: Walk, down: Down, client: Client, facts: Facts) -> tuple[Algorithm.Up, Client]:
        """Renew the client's linear term."""
        delta = walk.end - down.x
        return self.Up(delta), self.Client(client.h_i - self.alpha * delta)

    def aggregate(self, server: Server, mean: Algorithm.Up, cohort: Cohort) -> Server:
        """Average the end models and compensate the drift."""
        h = server.h - self.alpha * cohort.share * mean.delta
        gamma = server.x + mean.delta
        return self.Server(gamma - h / self.alpha if self.compensate else gamma, h, gamma)

    def models(self, server: Server) -> dict[str, Vector]:
        """Evaluate θ (what is sent) and γ (the mean end model)."""
        return {"x": server.x, "gamma": server.gamma}
