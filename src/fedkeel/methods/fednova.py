"""FedNova, Wang et al. 2020: normalise each client's move by how far it was allowed to go."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.algorithm import Algorithm, Cohort, Facts, Walk, method
from fedkeel.records import Nothing
from fedkeel.vector import Vector


@method
class FedNova(Algorithm):
    """Wang et al. 2020: clients that take more steps do not weigh more.

    Sends D/length and length; x ← x + mean(length)·mean(D/length). With equal sizes it is FedAvg.
    """

    class Up(NamedTuple):
        """The move per unit of rate, and the sum of the rates."""

        rate: Vector
        length: Vector

    def finish(self, walk: Walk, down: Algorithm.Server, client: Nothing, facts: Facts) -> tuple[Up, Nothing]:
        """Send the normalised move."""
        return self.Up((walk.end - down.x) / walk.length, walk.length), client

    def aggregate(self, server: Algorithm.Server, mean: Up, cohort: Cohort) -> Algorithm.Server:
        """Step along the mean normalised move."""
        return self.Server(server.x + mean.length * mean.rate)
