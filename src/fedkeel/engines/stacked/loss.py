"""A task's loss as a function of one client's flat vector, fit to be mapped over clients."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedkeel.algorithm import Objective
from fedkeel.data.federation import Batch
from fedkeel.engines.stacked.cumulative import Cumulative
from fedkeel.layout import Layout
from fedkeel.oracle import Oracle
from fedkeel.records import Nothing, Record, transform
from fedkeel.task import watched
from fedkeel.vector import Vector


class Moving(NamedTuple):
    """Buffers that training moves: the float ones as one vector, and counters as another."""

    floats: Vector
    counts: Tensor


class Given(NamedTuple):
    """What a client's loss depends on besides its vector; `moving` is empty where no buffer moves."""

    inputs: Tensor
    target: Tensor
    weights: Tensor | None
    context: Record
    fixed: list[Tensor]
    moving: Record = Nothing()


Loss = Callable[[Vector, Given], tuple[Tensor, Record]]
Held = dict[str, Tensor]


class Sight(NamedTuple):
    """What a forward pass at the walk's own point gives."""

    output: Tensor
    features: Tensor | None


class Net:
    """A model as a function of a flat vector and of its fixed tensors (frozen parameters and buffers).

    Where training moves some buffers, given by name, all float ones and those counters are not fixed: each
    client has its own.
    """

    def __init__(self, oracle: Oracle, moved: Collection[str] = ()) -> None:
        self.oracle, self.looks = oracle, 0
        module = oracle.module
        frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
        buffers = dict(module.named_buffers())
        self._floats = oracle.buffer_layout if moved else Layout((), ())
        counters = [(name, b) for name, b in buffers.items() if name in moved and not b.is_floating_point()]
        self._counters = Layout.of(counters)
        self._moves = bool(moved)
        self.cumulative = Cumulative(module)
        own = {*self._floats.names, *self._counters.names}
        self._names = [*frozen, *(name for name in buffers if name not in own)]

    @property
    def moving(self) -> Record:
        """Return the present values of the buffers that training moves; an empty record where none does."""
        if not self._moves:
            return Nothing()
        buffers = dict(self.oracle.module.named_buffers())
        counts = [buffers[name].reshape(-1) for name in self._counters.names]
        none = torch.zeros(0, dtype=torch.int64, device=self.oracle.device)
        return Moving(self.oracle.buffers.clone(), torch.cat([none, *counts]))

    def hold(self, fixed: list[Tensor], moving: Record) -> Held:
        """Return all but the trained tensors by name; what a forward pass writes to, in memory of its own."""
        held = dict(zip(self._names, fixed, strict=True))
        if not self._moves:
            return held
        views = {**self._floats.views(moving.floats), **self._counters.views(moving.counts)}
        own = {name: view.clone(memory_format=torch.contiguous_format) for name, view in views.items()}
        return {**held, **own}

    def let_go(self, held: Held, moving: Record) -> Record:
        """Return what a pass has made of a client's buffers, which were `moving` before."""
        if not self._moves:
            return moving
        layouts = self._floats, self._counters
        return Moving(*(_joined(held, *parts) for parts in zip(layouts, moving, strict=True)))

    @property
    def fixed(self) -> list[Tensor]:
        """Return the present values of the fixed tensors."""
        module = self.oracle.module
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return [held[name].detach() for name in self._names]

    def look(self, module: nn.Module, at: Vector, inputs: Tensor, held: Held, features: bool) -> Sight:
        """Run a module of the model's kind at a vector, and count the pass."""
        self.looks += 1
        tensors = {**self.oracle.layout.views(at), **held}
        if not features:
            return Sight(functional_call(module, tensors, (inputs,)), None)
        with watched(module, self.oracle.task.features) as found:
            output = functional_call(module, tensors, (inputs,))
        return Sight(output, found[-1])


def _joined(held: Held, layout: Layout, before: Tensor) -> Tensor:
    parts = [held[name].detach().reshape(-1) for name in layout.names]
    return torch.cat(parts) if parts else before


class StackedForward:
    """The forward passes an objective may ask for, with the protocol of `oracle.Forward`."""

    def __init__(self, net: Net, y: Vector, sight: Sight, held: Held) -> None:
        self._net, self._y, self._sight, self._held = net, y, sight, held

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
        seen = net.look(net.oracle.eval_copy, vector, inputs, self._held, features)
        return Sight(seen.output.detach(), None if seen.features is None else seen.features.detach())


def loss_of(net: Net, objective: Objective | None) -> Loss:
    """Return one client's minibatch loss, and its moved buffers, as a function of its vector and the given.

    Without weights it is the task's loss, whatever that is. With weights (some samples are filling) it is
    weighed sample by sample: each is handed to the loss, and to the objective, as a minibatch of one, which
    is exact for any mean over samples. `stackable_net` finds out whether the task's loss is one; an
    objective must be.
    """
    features = objective is not None and objective.features
    task_loss = net.oracle.task.loss

    def of(y: Vector, sight: Sight, batch: Batch, context: Record, held: Held) -> Tensor:
        loss = task_loss(sight.output, batch[1])
        if objective is None:
            return loss
        return loss + objective.function(StackedForward(net, y, sight, held), y, batch, context)

    def loss(y: Vector, given: Given) -> tuple[Tensor, Record]:
        batch, held = (given.inputs, given.target), net.hold(given.fixed, given.moving)
        with net.cumulative.averaged(held):
            sight = net.look(net.oracle.module, y, given.inputs, held, features)
        if given.weights is None:
            return of(y, sight, batch, given.context, held), net.let_go(held, given.moving)

        def alone(output: Tensor, seen: Tensor, x: Tensor, t: Tensor) -> Tensor:
            return of(y, Sight(output[None], seen[None]), (x[None], t[None]), given.context, held)

        seen = sight.output if sight.features is None else sight.features
        each = vmap(alone)(sight.output, seen, *batch)
        return (each * given.weights).sum(), net.let_go(held, given.moving)

    return loss


def mapped_over_clients(loss: Loss, like: Given) -> Callable[[Vector, Given], tuple[Vector, Tensor, Record]]:
    """Return the clients' gradients, losses and moved buffers as a function of points and of what is given.

    `like` shows which parts are each client's own, with a first axis, and which are everyone's.
    """
    axes = Given(
        inputs=0,  # type: ignore[arg-type]
        target=0,  # type: ignore[arg-type]
        weights=None if like.weights is None else 0,  # type: ignore[arg-type]
        context=transform(_axis, like.context),
        fixed=None,  # type: ignore[arg-type]
        moving=transform(_axis, like.moving),
    )
    mapped = vmap(grad_and_value(loss, has_aux=True), in_dims=(0, axes))

    def of(y: Vector, given: Given) -> tuple[Vector, Tensor, Record]:
        g, (value, moving) = mapped(y, given)
        return g, value, moving

    return of


def _axis(tensor: Tensor) -> Any:
    """Return the client axis of a tensor; a vector of its own kind has none."""
    return 0 if tensor.ndim > 1 else None
