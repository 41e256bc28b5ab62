"""FedSpeed, Sun et al. 2023: a prox-correction and a perturbed gradient for longer local walks."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fedkeel.common.frozen import NonNegative, Positive, added
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, Sharp, Walk, method
from fedkeel.tensors.vector import Vector, zeros_like


@method
class FedSpeed(Algorithm):
    """Sun et al. 2023: the proximal pull 1/λ is corrected by the client's ĝ_i, gradients are perturbed.

    With alpha = 1/λ: steps along g − ĝ_i + α·(y − x), g blended with the gradient at a point ρ away;
    ĝ_i ← ĝ_i − α·D; sends D − ĝ_i/α; x ← x + mean: the corrections of the cohort alone.
    `correction="all"` is what the authors run (FL-Simulator): the server keeps h ← h − α·share·mean(D), the
    mean ĝ_i of all clients, and x ← x + mean(D) − h/α. With blend = 1 that is sharp(FedDyn(α), ρ). The two
    agree under full participation only.
    """

    alpha: Positive = 0.1
    rho: NonNegative = 0.1
    blend: NonNegative = 1.0
    correction: Literal["cohort", "all"] = added("cohort")

    class Server(NamedTuple):
        """The model, and the mean correction of all clients where that is what x is corrected by."""

        x: Vector
        h: Vector | None = None

    class Down(NamedTuple):
        """The model alone."""

        x: Vector

    class Client(NamedTuple):
        """The client's prox-correction."""

        g_i: Vector

    class Up(NamedTuple):
        """The move, corrected where the cohort's corrections are averaged."""

        delta: Vector

    def init(self, x: Vector) -> Server:
        """Start without a correction."""
        return self.Server(x, zeros_like(x) if self.correction == "all" else None)

    def broadcast(self, server: Server) -> Down:
        """Send the model alone."""
        return self.Down(server.x)

    def init_client(self, x0: Vector) -> Client:
        """Start without a correction."""
        return self.Client(zeros_like(x0))

    def plan(self, down: Down, client: Client, facts: Facts) -> Plan:
        """Pull towards the model, corrected, with perturbed gradients."""
        sharp = Sharp(self.rho, self.blend)
        return Plan(start=down.x, pull=self.alpha, push=-client.g_i, sharp=sharp)

    def finish(self, walk: Walk, down: Down, client: Client, facts: Facts) -> tuple[Up, Client]:
        """Renew the correction and send the move, corrected where the server does not do it."""
        delta = walk.end - down.x
        g_i = client.g_i - self.alpha * delta
        return self.Up(delta if self.correction == "all" else delta - g_i / self.alpha), self.Client(g_i)

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Step along the mean corrected move, or correct the mean move by all clients' corrections."""
        if server.h is None:
            return self.Server(server.x + mean.delta)
        h = server.h - self.alpha * cohort.share * mean.delta
        return self.Server(server.x + mean.delta - h / self.alpha, h)
