"""A task's loss as a function of one client's flat vector, fit to be mapped over clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedkeel.algorithm import Objective
from fedkeel.oracle import Oracle
from fedkeel.records import Record
from fedkeel.task import watched
from fedkeel.vector import Vector


class Given(NamedTuple):
    """What a client's loss depends on besides its vector."""

    inputs: Tensor
    target: Tensor
    weights: Tensor | None
    context: Record
    fixed: list[Tensor]


Loss = Callable[[Vector, Given], Tensor]


class Sight(NamedTuple):
    """What a forward pass at the walk's own point gives."""

    output: Tensor
    features: Tensor | None


class Net:
    """A model as a function of a flat vector and of its fixed tensors (frozen parameters and buffers)."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.looks = oracle, 0
        module = oracle.module
        frozen = [(name, p) for name, p in module.named_parameters() if not p.requires_grad]
        self._names = [name for name, _ in (*frozen, *module.named_buffers())]

    @property
    def fixed(self) -> list[Tensor]:
        """Return the present values of the fixed tensors."""
        module = self.oracle.module
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return [held[name].detach() for name in self._names]

    def look(
        self, module: nn.Module, at: Vector, inputs: Tensor, fixed: list[Tensor], features: bool
    ) -> Sight:
        """Run a module of the model's kind at a vector, and count the pass."""
        self.looks += 1
        tensors = {**self.oracle.layout.views(at), **dict(zip(self._names, fixed, strict=True))}
        if not features:
            return Sight(functional_call(module, tensors, (inputs,)), None)
        with watched(module, self.oracle.task.features) as found:
            output = functional_call(module, tensors, (inputs,))
        return Sight(output, found[-1])


class StackedForward:
    """The forward passes an objective may ask for, with the protocol of `oracle.Forward`."""

    def __init__(self, net: Net, y: Vector, sight: Sight, fixed: list[Tensor]) -> None:
        self._net, self._y, self._sight, self._fixed = net, y, sight, fixed

    def __call__(self, vector: Vector, inputs: Tensor) -> Tensor:
        """Return the model's outputs at a vector."""
        return self._at(vector, inputs, features=False).output

    def features(self, vector: Vector, inputs: Tensor) -> Tensor:
        """Return the model's penultimate features at a vector."""
        found = self._at(vector, inputs, features=True).features
        assert found is not None, "the objective did not say that it asks for features"
        return found

    def _at(self, vector: Vector, inputs: Tensor, features: bool) -> Sight:
        """Look at the walk's own point, or in evaluation mode and as a constant at another vector."""
        if vector is self._y:
            return self._sight
        net = self._net
        seen = net.look(net.oracle.still, vector, inputs, self._fixed, features)
        return Sight(seen.output.detach(), None if seen.features is None else seen.features.detach())


def loss_of(net: Net, objective: Objective | None) -> Loss:
    """Return one client's minibatch loss as a function of its vector and of what is given.

    Without weights it is the task's loss, whatever that is. With weights (some samples are filling) it is
    weighed sample by sample: each is handed to the loss, and to the objective, as a minibatch of one, which
    is exact for any mean over samples. `check_stackable` finds out whether the task's loss is one; an
    objective must be.
    """
    features = objective is not None and objective.features
    task_loss = net.oracle.task.loss

    def of(y: Vector, sight: Sight, inputs: Tensor, target: Tensor, given: Given) -> Tensor:
        loss = task_loss(sight.output, target)
        if objective is None:
            return loss
        forward = StackedForward(net, y, sight, given.fixed)
        return loss + objective.function(forward, y, (inputs, target), given.context)

    def loss(y: Vector, given: Given) -> Tensor:
        sight = net.look(net.oracle.module, y, given.inputs, given.fixed, features)
        if given.weights is None:
            return of(y, sight, given.inputs, given.target, given)

        def alone(output: Tensor, seen: Tensor, x: Tensor, t: Tensor) -> Tensor:
            return of(y, Sight(output[None], seen[None]), x[None], t[None], given)

        seen = sight.output if sight.features is None else sight.features
        return (vmap(alone)(sight.output, seen, given.inputs, given.target) * given.weights).sum()

    return loss
