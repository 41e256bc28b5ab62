"""FedDyn, Acar et al. 2021: a linear and a proximal term align the clients' optima with the global one."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from fedkeel.common.frozen import Positive, added
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, Walk, method
from fedkeel.tensors.vector import Vector, zeros_like


@method
class FedDyn(Algorithm):
    """Acar et al. 2021: dynamic regularisation by a linear and a proximal term.

    Steps along g − h_i + α·(y − x); h_i ← h_i − α·D. The server keeps h ← h − α·share·mean(D), the mean
    model γ = x + mean(D), and sends θ = x = γ − h/α. Both are evaluated: x is θ, the other is gamma.
    `regularize=False` (Rethinking's "w/o Reg") walks plainly, `compensate=False` ("w/o h") sends γ.

    `by_size=True` is what the authors run on clients of unequal sizes: a client takes α/w_i in place of α,
    with w_i = n_i / mean n. The server is the same, so h is the mean of all w_i·h_i, and the fixed point is
    the optimum over all samples.

    `last_models=True` evaluates a third model, "all": the mean over all clients of the model that each ended
    at last (x⁰ for one that never took part), which the authors plot. A client then keeps that model, and
    sends how far it moved, so that the server can renew the mean.
    """

    alpha: Positive = 0.1
    regularize: bool = True
    compensate: bool = True
    by_size: bool = added(False)
    last_models: bool = added(False)

    class Server(NamedTuple):
        """What is sent, the sum of the linear terms, the mean end model, that of all clients' last models."""

        x: Vector
        h: Vector
        gamma: Vector
        mean_last: Vector | None = None

    class Client(NamedTuple):
        """The client's linear term, and its last end model where the mean of these is evaluated."""

        h_i: Vector
        last: Vector | None = None

    class Down(NamedTuple):
        """The model alone."""

        x: Vector

    class Up(NamedTuple):
        """The move, and that of the client's last end model where the mean of these is evaluated."""

        delta: Vector
        delta_last: Vector | None = None

    def init(self, x: Vector) -> Server:
        """Start with a zero linear term."""
        return self.Server(x, zeros_like(x), x, x if self.last_models else None)

    def init_client(self, x0: Vector) -> Client:
        """Start with a zero linear term."""
        return self.Client(zeros_like(x0), x0 if self.last_models else None)

    def broadcast(self, server: Server) -> Down:
        """Send the model alone."""
        return self.Down(server.x)

    def plan(self, down: Down, client: Client, facts: Facts) -> Plan:
        """Push by −h_i and pull towards the broadcast model."""
        if not self.regularize:
            return Plan(start=down.x)
        return Plan(start=down.x, push=-client.h_i, pull=self._strength(facts))

    def finish(self, walk: Walk, down: Down, client: Client, facts: Facts) -> tuple[Up, Client]:
        """Renew the client's linear term."""
        delta = walk.end - down.x
        h_i = client.h_i - self._strength(facts) * delta
        if client.last is None:
            return self.Up(delta), self.Client(h_i)
        return self.Up(delta, walk.end - client.last), self.Client(h_i, walk.end)

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Average the end models and compensate the drift."""
        h = server.h - self.alpha * cohort.share * mean.delta
        gamma = server.x + mean.delta
        mean_last = server.mean_last
        if mean_last is not None and mean.delta_last is not None:
            mean_last = mean_last + cohort.share * mean.delta_last
        return self.Server(gamma - h / self.alpha if self.compensate else gamma, h, gamma, mean_last)

    def models(self, server: Server) -> dict[str, Vector]:
        """Evaluate θ (what is sent), γ (the mean end model), and the mean of all clients' last models."""
        last = {} if server.mean_last is None else {"all": server.mean_last}
        return {"x": server.x, "gamma": server.gamma, **last}

    def _strength(self, facts: Facts) -> float | Tensor:
        """Return the client's own α."""
        return self.alpha / facts.weight if self.by_size else self.alpha
