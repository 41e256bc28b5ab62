"""SCAFFOLD, Karimireddy et al. 2020: control variates steer the local steps."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fedkeel.common.frozen import Positive, added
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, Walk, method
from fedkeel.tensors.vector import Vector, zeros_like


@method
class SCAFFOLD(Algorithm):
    """Karimireddy et al. 2020: steer each step by the difference of two control variates.

    Steps along g − c_i + c. Option "II" renews c_i ← c_i − c + W with W the walk's mean direction (exact
    under decayed rates and ragged clients); option "I" takes the full gradient at x.
    The server adds share·mean(c_i⁺ − c_i), so c stays the mean of all c_i under partial participation.

    `by_size=True` is what Acar et al. run on clients of unequal sizes, with w_i = n_i / mean n: steps along
    g − c_i + c/w_i, and the server adds share·mean(w_i·(c_i⁺ − c_i)), so c is the mean of all w_i·c_i and the
    fixed point is the optimum over all samples. As in their code, c_i⁺ = c_i − c + W takes c undivided.
    """

    lr: Positive = 1.0
    option: Literal["I", "II"] = "II"
    by_size: bool = added(False)

    class Server(NamedTuple):
        """The model and the mean control variate."""

        x: Vector
        c: Vector

    class Client(NamedTuple):
        """The client's control variate."""

        c_i: Vector

    class Up(NamedTuple):
        """The move and the change of the control variate."""

        delta: Vector
        delta_c: Vector

    def init(self, x: Vector) -> Server:
        """Start with zero control variates."""
        return self.Server(x, zeros_like(x))

    def init_client(self, x0: Vector) -> Client:
        """Start with a zero control variate."""
        return self.Client(zeros_like(x0))

    def plan(self, down: Server, client: Client, facts: Facts) -> Plan:
        """Push by c − c_i."""
        c = down.c / facts.weight if self.by_size else down.c
        return Plan(start=down.x, push=c - client.c_i, full_gradient=self.option == "I")

    def finish(self, walk: Walk, down: Server, client: Client, facts: Facts) -> tuple[Up, Client]:
        """Renew the client's control variate."""
        c_i = walk.full_gradient if self.option == "I" else client.c_i - down.c + walk.direction
        assert c_i is not None  # option "I" plans the full gradient
        delta_c = facts.weight * (c_i - client.c_i) if self.by_size else c_i - client.c_i
        return self.Up(walk.end - down.x, delta_c), self.Client(c_i)

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Step along the mean move and keep c the mean of all c_i, or of all w_i·c_i."""
        return self.Server(server.x + self.lr * mean.delta, server.c + cohort.share * mean.delta_c)
