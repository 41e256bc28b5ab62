"""FedProx, Li et al. 2020: a proximal term holds each client near the broadcast model."""

from __future__ import annotations

from fedkeel.common.frozen import NonNegative
from fedkeel.core.algorithm import Algorithm, Facts, Plan, method
from fedkeel.tensors.records import Nothing


@method
class FedProx(Algorithm):
    """Li et al. 2020: a proximal term holds each client near the broadcast model.

    The local objective gains μ/2·‖y − x‖², so each step gains μ·(y − x).
    """

    mu: NonNegative = 0.01

    def plan(self, down: Algorithm.Server, client: Nothing, facts: Facts) -> Plan:
        """Pull towards the broadcast model."""
        return Plan(start=down.x, pull=self.mu)
