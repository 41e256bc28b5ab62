"""FedSpeed, Sun et al. 2023: a prox-correction and a perturbed gradient for longer local walks."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.algorithm import Algorithm, Cohort, Facts, Plan, Sharp, Walk, method
from fedkeel.frozen import NonNegative, Positive
from fedkeel.vector import Vector, zeros_like


@method
class FedSpeed(Algorithm):
    """Sun et al. 2023: the proximal pull 1/λ is corrected by the client's ĝ_i, gradients are perturbed.

    With alpha = 1/λ: steps along g − ĝ_i + α·(y − x), g blended with the gradient at a point ρ away;
    ĝ_i ← ĝ_i − α·D; sends D − ĝ_i/α; x ← x + mean. FL-Simulator's form is sharp(FedDyn(α), ρ): the two agree
    under full participation only.
    """

    alpha: Positive = 0.1
    rho: NonNegative = 0.1
    blend: NonNegative = 1.0

    class Client(NamedTuple):
        """The client's prox-correction."""

        g_i: Vector

    class Up(NamedTuple):
        """The corrected move."""

        delta: Vector

    def enlist(self, x0: Vector) -> Client:
        """Start without a correction."""
        return self.Client(zeros_like(x0))

    def plan(self, down: Algorithm.Server, client: Client, facts: Facts) -> Plan:
        """Pull towards the model, corrected, with perturbed gradients."""
        sharp = Sharp(self.rho, self.blend)
        return Plan(start=down.x, pull=self.alpha, push=-client.g_i, sharp=sharp)

    def finish(self, walk: Walk, down: Algorithm.Server, client: Client, facts: Facts) -> tuple[Up, Client]:
        """Renew the correction and send the corrected move."""
        delta = walk.end - down.x
        g_i = client.g_i - self.alpha * delta
        return self.Up(delta - g_i / self.alpha), self.Client(g_i)

    def aggregate(self, server: Algorithm.Server, mean: Up, cohort: Cohort) -> Algorithm.Server:
        """Step along the mean corrected move."""
        return self.Server(server.x + mean.delta)
