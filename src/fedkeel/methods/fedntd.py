"""FedNTD, Lee et al. 2022: distil what the global model knows of the other classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import NonNegative, Positive
from fedkeel.core.algorithm import Algorithm, Facts, Objective, Plan, method
from fedkeel.tensors.records import Nothing
from fedkeel.tensors.vector import Vector


@method
class FedNTD(Algorithm):
    """Lee et al. 2022: not-true distillation keeps the client from forgetting the classes it lacks.

    The local loss gains β·τ²·KL(p ‖ q), both softmaxes at temperature τ over the classes without the true
    one: p of the broadcast model (the teacher, in evaluation mode), q of the client's own. With two classes
    it is FedAvg.
    """

    beta: NonNegative = 1.0
    tau: Positive = 1.0

    class Context(NamedTuple):
        """The teacher's vector."""

        teacher: Vector

    def plan(self, down: Algorithm.Server, client: Nothing, facts: Facts) -> Plan:
        """Add the distillation loss."""
        return Plan(start=down.x, objective=Objective(self.distil, self.Context(down.x)))

    def distil(self, forward: Any, y: Vector, batch: tuple[Tensor, Tensor], context: Context) -> Tensor:
        """Return the distillation loss of a minibatch."""
        inputs, target = batch
        student = log_softmax(_others(forward(y, inputs), target) / self.tau, dim=-1)
        teacher = log_softmax(_others(forward(context.teacher, inputs), target) / self.tau, dim=-1)
        divergence = torch.sum(teacher.exp() * (teacher - student), dim=-1)
        return self.beta * self.tau**2 * divergence.mean()


def _others(logits: Tensor, target: Tensor) -> Tensor:
    """Return the logits (n, classes) without each sample's true class."""
    if logits.ndim != 2 or target.ndim != 1 or target.is_floating_point():
        raise ConfigError(
            f"FedNTD needs a classifier: outputs (n, classes) and whole-number targets (n,), not outputs of "
            f"shape {tuple(logits.shape)} and {target.dtype} targets of shape {tuple(target.shape)}"
        )
    index = torch.arange(logits.shape[1] - 1, device=logits.device)
    return logits.gather(1, index + (index >= target[:, None]).long())
