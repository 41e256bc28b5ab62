"""FedProx, Li et al. 2020: a spring to the broadcast model."""

from __future__ import annotations

from fedkeel.algorithm import Algorithm, Plan, method
from fedkeel.frozen import NonNegative
from fedkeel.records import Record


@method
class FedProx(Algorithm):
    """Li et al. 2020: a spring to the broadcast model holds each client back.

    The local objective gains μ/2·‖y − x‖², so each step gains μ·(y − x).
    """

    mu: NonNegative = 0.01

    def plan(self, down: Record, client: Record) -> Plan:
        """Pull towards the broadcast model."""
        return Plan(start=down.x, pull=self.mu)
