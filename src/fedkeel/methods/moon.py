"""MOON, Li et al. 2021: a contrastive loss between the client's, the global and the last local features."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fedkeel.common.frozen import NonNegative, Positive
from fedkeel.core.algorithm import Algorithm, Facts, Objective, Plan, Walk, method
from fedkeel.tensors.vector import Vector, scalar_like


@method
class MOON(Algorithm):
    """Li et al. 2021: pull the client's features towards the global model's, away from its own last ones.

    The local loss gains μ·CE([cos(z_y, z_x), cos(z_y, z_last)]/τ, 0) on penultimate features (see `Task`);
    there is no projection head. The first time, last = x, so the term only adds a constant.
    """

    mu: NonNegative = 1.0
    tau: Positive = 0.5

    class Client(NamedTuple):
        """The end model of the last participation, and how often it took part."""

        last: Vector
        seen: Vector

    class Context(NamedTuple):
        """The vectors of the two other models."""

        broadcast: Vector
        last: Vector

    def init_client(self, x0: Vector) -> Client:
        """Start without a last model."""
        return self.Client(x0, scalar_like(x0, 0.0))

    def plan(self, down: Algorithm.Server, client: Client, facts: Facts) -> Plan:
        """Add the contrastive loss."""
        last = torch.where(client.seen > 0, client.last, down.x)
        context = self.Context(down.x, last)
        return Plan(start=down.x, objective=Objective(self.contrast, context, features=True))

    def finish(
        self, walk: Walk, down: Algorithm.Server, client: Client, facts: Facts
    ) -> tuple[Algorithm.Up, Client]:
        """Keep the end model."""
        return self.Up(walk.end - down.x), self.Client(walk.end, client.seen + 1)

    def contrast(self, forward: Any, y: Vector, batch: tuple[Tensor, Tensor], context: Context) -> Tensor:
        """Return the contrastive loss of a minibatch; −log of a two-way softmax is a softplus."""
        inputs, _ = batch
        own = forward.features(y, inputs).flatten(1)
        near = cosine_similarity(own, forward.features(context.broadcast, inputs).flatten(1), dim=-1)
        far = cosine_similarity(own, forward.features(context.last, inputs).flatten(1), dim=-1)
        return self.mu * softplus((far - near) / self.tau).mean()
