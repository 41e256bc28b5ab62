"""Sharpness-aware steps on any method (Foret et al. 2021; Qu et al. 2022 for FedSAM)."""

from __future__ import annotations

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import NonNegative
from fedkeel.core.algorithm import Algorithm, Facts, Plan, Sharp, Wrapper, method
from fedkeel.methods.fedcm import FedCM
from fedkeel.methods.scaffold import SCAFFOLD
from fedkeel.methods.stages import Stages, on_each
from fedkeel.tensors.records import Record


@method
class Sharpened(Wrapper):
    """Qu et al. 2022: take every gradient at y + ρ·g/‖g‖ instead of y.

    sharp(FedCM) is MoFedSAM and sharp(SCAFFOLD) is FedGamma. ρ = 0 skips the second pass.
    """

    rho: NonNegative = 0.1

    def __repr__(self) -> str:
        return f"sharp({self.inner!r}, rho={self.rho!r})"

    def plan(self, down: Record, client: Record, facts: Facts) -> Plan:
        """Ask for the second gradient."""
        plan = self.inner.plan(down, client, facts)
        if plan.sharp is not None:
            raise ConfigError(f"sharp({self.inner!r}): that method has a sharp step already")
        return plan._replace(sharp=Sharp(self.rho))


def sharp(inner: Algorithm | Stages, rho: float = 0.1) -> Algorithm | Stages:
    """Take sharpness-aware steps in any method or in each stage."""
    return on_each(inner, lambda one: Sharpened(one, rho))


def MoFedSAM(alpha: float = 0.1, lr: float = 1.0, rho: float = 0.1) -> Sharpened:  # noqa: N802
    """Qu et al. 2022: sharpness-aware steps with client-level momentum, sharp(FedCM)."""
    return Sharpened(FedCM(alpha, lr), rho)


def FedGamma(lr: float = 1.0, rho: float = 0.1) -> Sharpened:  # noqa: N802
    """Dai et al. 2023: sharpness-aware steps with control variates, sharp(SCAFFOLD)."""
    return Sharpened(SCAFFOLD(lr), rho)
