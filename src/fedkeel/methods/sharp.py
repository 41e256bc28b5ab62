"""Sharpness-aware steps on any method (Foret et al. 2021; Qu et al. 2022 for FedSAM)."""

from __future__ import annotations

from fedkeel.algorithm import Plan, Sharp, Wrapper, method
from fedkeel.errors import ConfigError
from fedkeel.records import Record
from fedkeel.values import NonNegative


@method
class Sharpened(Wrapper):
    """Qu et al. 2022: take every gradient at y + ρ·g/‖g‖ instead of y.

    sharp(FedCM) is MoFedSAM and sharp(SCAFFOLD) is FedGamma. ρ = 0 skips the second pass.
    """

    rho: NonNegative = 0.1

    def __repr__(self) -> str:
        return f"sharp({self.inner!r}, rho={self.rho!r})"

    def plan(self, down: Record, client: Record) -> Plan:
        """Ask for the second gradient."""
        plan = self.inner.plan(down, client)
        if plan.sharp is not None:
            raise ConfigError(f"sharp({self.inner!r}): that method has a sharp step already")
        return plan._replace(sharp=Sharp(self.rho))
