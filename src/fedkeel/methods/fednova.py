"""FedNova, Wang et al. 2020: normalise each client's move by how far it was allowed to go."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.common.frozen import NonNegative, added
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, Walk, method
from fedkeel.tensors.records import Nothing
from fedkeel.tensors.vector import Vector


@method
class FedNova(Algorithm):
    """Wang et al. 2020: clients that take more steps do not weigh more.

    Sends D/r and r; x ← x + mean(r)·mean(D/r). With equal sizes it is FedAvg. r = lr·‖a_i‖₁ is how far a
    constant gradient of one would carry the client: the sum of the rates, unless there is local momentum
    (`Work.momentum`) or a pull towards x, by `mu` as in FedProx.
    """

    mu: NonNegative = added(0.0)

    class Up(NamedTuple):
        """The normalised move, and what it was divided by."""

        rate: Vector
        length: Vector

    def plan(self, down: Algorithm.Server, client: Nothing, facts: Facts) -> Plan:
        """Walk, held near x by mu."""
        return Plan(start=down.x, pull=self.mu)

    def finish(self, walk: Walk, down: Algorithm.Server, client: Nothing, facts: Facts) -> tuple[Up, Nothing]:
        """Send the normalised move."""
        return self.Up((walk.end - down.x) / walk.reach, walk.reach), client

    def aggregate(self, server: Algorithm.Server, mean: Up, cohort: Cohort) -> Algorithm.Server:
        """Step along the mean normalised move."""
        return self.Server(server.x + mean.length * mean.rate)
