"""FedSAM, Qu et al. 2022: sharpness-aware local steps."""

from __future__ import annotations

from fedkeel.common.frozen import NonNegative
from fedkeel.core.algorithm import Algorithm, Facts, Plan, method
from fedkeel.tensors.records import Nothing


@method
class FedSAM(Algorithm):
    """Qu et al. 2022: every local gradient is taken at y + ρ·g/‖g‖, on the same minibatch.

    Two gradients per step; otherwise FedAvg.
    """

    rho: NonNegative = 0.1

    def plan(self, down: Algorithm.Server, client: Nothing, facts: Facts) -> Plan:
        """Ask for the second gradient."""
        return Plan(start=down.x, sharp=self.rho)
