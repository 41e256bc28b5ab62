"""A task's loss as a function of one client's flat vector, fit to be mapped over clients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from fedkeel.core.algorithm import Objective
from fedkeel.core.oracle import Oracle
from fedkeel.core.task import watched
from fedkeel.core.weighted import number, sample_terms
from fedkeel.data.federation import Batch
from fedkeel.engines.stacked.cumulative import CumulativeNorms
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Nothing, Record, transform
from fedkeel.tensors.trees import Tree, call_at, each, from_tensors, structure
from fedkeel.tensors.vector import Vector


class MovingBuffers(NamedTuple):
    """Buffers that training changes: the float ones as one vector, and counters as another."""

    floats: Vector
    counts: Tensor


class LossInputs(NamedTuple):
    """What a client's loss depends on besides its vector; `moving` is empty where no buffer changes."""

    inputs: Tree
    target: Tree
    weights: Tensor | None
    context: Record
    fixed: list[Tensor]
    moving: Record = Nothing()


Loss = Callable[[Vector, LossInputs], tuple[Tensor, Record]]
NamedTensors = dict[str, Tensor]


class ForwardResult(NamedTuple):
    """What a forward pass gives; `features` only where they were asked for."""

    output: Any
    features: Tensor | None


class StackedModel:
    """A model as a function of a flat vector and of its fixed tensors (frozen parameters and buffers).

    Where training changes some buffers, given by name, all float ones and those counters are not fixed: each
    client has its own. `forwards` counts the forward passes. The batch shows what inputs and targets are.
    `weighs`: the loss is a mean over something else than samples, as over tokens that are no padding.
    """

    def __init__(
        self, oracle: Oracle, batch: Batch, moved: Collection[str] = (), *, weighs: bool = False
    ) -> None:
        self.oracle, self.forwards, self.weighs = oracle, 0, weighs
        self._structures = structure(batch[0]), structure(batch[1])
        module = oracle.module
        frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
        buffers = dict(module.named_buffers())
        self._floats = oracle.buffer_layout if moved else Layout((), ())
        counters = [(name, b) for name, b in buffers.items() if name in moved and not b.is_floating_point()]
        self._counters = Layout.of(counters)
        self._moves = bool(moved)
        self.cumulative = CumulativeNorms(module)
        own = {*self._floats.names, *self._counters.names}
        self._names = [*frozen, *(name for name in buffers if name not in own)]

    def batch_of(self, *parts: Sequence[Tensor]) -> Batch:
        """Return inputs and targets as the model and the loss take them, from their tensors."""
        inputs, target = (from_tensors(*pair) for pair in zip(self._structures, parts, strict=True))
        return inputs, target

    @property
    def moving(self) -> Record:
        """Return the present values of the buffers that training changes, an empty record if none."""
        if not self._moves:
            return Nothing()
        buffers = dict(self.oracle.module.named_buffers())
        counts = [buffers[name].reshape(-1) for name in self._counters.names]
        none = torch.zeros(0, dtype=torch.int64, device=self.oracle.device)
        return MovingBuffers(self.oracle.buffers.clone(), torch.cat([none, *counts]))

    @property
    def fixed(self) -> list[Tensor]:
        """Return the present values of the fixed tensors."""
        module = self.oracle.module
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return [tensors[name].detach() for name in self._names]

    def untrained(self, fixed: list[Tensor], moving: Record) -> NamedTensors:
        """Return all but the trained tensors by name; those that a forward pass writes to are copies."""
        tensors = dict(zip(self._names, fixed, strict=True))
        if not self._moves:
            return tensors
        views = {**self._floats.views(moving.floats), **self._counters.views(moving.counts)}
        own = {name: view.clone(memory_format=torch.contiguous_format) for name, view in views.items()}
        return {**tensors, **own}

    def moved(self, tensors: NamedTensors, before: Record) -> Record:
        """Return a client's buffers after a pass that wrote to the named tensors."""
        if not self._moves:
            return before
        layouts = self._floats, self._counters
        return MovingBuffers(*(_joined(tensors, *parts) for parts in zip(layouts, before, strict=True)))

    def forward(
        self, module: nn.Module, at: Vector, inputs: Tree, untrained: NamedTensors, features: bool
    ) -> ForwardResult:
        """Run a module of the model's architecture at a vector, and count the pass."""
        self.forwards += 1
        tensors = {**self.oracle.layout.views(at), **untrained}
        if not features:
            return ForwardResult(call_at(module, tensors, inputs), None)
        with watched(module, self.oracle.task.features) as found:
            output = call_at(module, tensors, inputs)
        return ForwardResult(output, found[-1])


def _joined(tensors: NamedTensors, layout: Layout, before: Tensor) -> Tensor:
    parts = [tensors[name].detach().reshape(-1) for name in layout.names]
    return torch.cat(parts) if parts else before


class StackedForward:
    """The forward passes an objective may ask for, with the protocol of `oracle.Forward`."""

    def __init__(
        self, model: StackedModel, y: Vector, result: ForwardResult, untrained: NamedTensors
    ) -> None:
        self._model, self._y, self._result, self._untrained = model, y, result, untrained

    def __call__(self, vector: Vector, inputs: Tree) -> Any:
        """Return the model's outputs at a vector."""
        return self._at(vector, inputs, features=False).output

    def features(self, vector: Vector, inputs: Tree) -> Tensor:
        """Return the model's penultimate features at a vector."""
        found = self._at(vector, inputs, features=True).features
        assert found is not None, "the objective did not say that it asks for features"
        return found

    def _at(self, vector: Vector, inputs: Tree, features: bool) -> ForwardResult:
        """Return the pass at the walk's own point, or one in evaluation mode and constant elsewhere."""
        if vector is self._y:
            return self._result
        model = self._model
        found = model.forward(model.oracle.eval_copy, vector, inputs, self._untrained, features)
        return ForwardResult(
            each(Tensor.detach, found.output), None if found.features is None else found.features.detach()
        )


def client_loss(model: StackedModel, objective: Objective | None) -> Loss:
    """Return one client's minibatch loss, and its updated buffers, as a function of its vector and inputs.

    Without weights it is the task's loss, whatever that is. With weights (some samples are padding) it is a
    weighted sum over samples: each is passed to the loss, and to the objective, as a minibatch of one, which
    is exact for any mean over samples. Where the loss weighs its targets, sums and weights are added apart.
    `stackable_model` finds out whether the task's loss is one of these; an objective must be a mean over
    samples.
    """
    features = objective is not None and objective.features
    task = model.oracle.task

    def batch_loss(
        y: Vector, result: ForwardResult, batch: Batch, context: Record, untrained: NamedTensors
    ) -> Tensor:
        loss = task.training_loss(result.output, batch[1])
        return loss if objective is None else loss + added(y, result, batch, context, untrained)

    def added(
        y: Vector, result: ForwardResult, batch: Batch, context: Record, untrained: NamedTensors
    ) -> Tensor:
        assert objective is not None
        return objective.function(StackedForward(model, y, result, untrained), y, batch, context)

    def loss(y: Vector, given: LossInputs) -> tuple[Tensor, Record]:
        batch, untrained = (given.inputs, given.target), model.untrained(given.fixed, given.moving)
        with model.cumulative.averaged(untrained):
            result = model.forward(model.oracle.module, y, given.inputs, untrained, features)
        if given.weights is None:
            value = batch_loss(y, result, batch, given.context, untrained)
            return value, model.moved(untrained, given.moving)

        def sample_loss(output: Any, features: Any, x: Tree, t: Tree) -> Tensor:
            single = ForwardResult(_as_batch(output), _as_batch(features))
            return batch_loss(y, single, (_as_batch(x), _as_batch(t)), given.context, untrained)

        def weighed_loss(output: Any, features: Any, x: Tree, t: Tree) -> tuple[Tensor, Tensor, Tensor]:
            single = ForwardResult(_as_batch(output), _as_batch(features))
            part = _as_batch(x), _as_batch(t)
            total, weight = sample_terms(task.loss, single.output, part[1])
            more = (
                torch.zeros_like(total)
                if objective is None
                else added(y, single, part, given.context, untrained)
            )
            return total, weight, more

        found = result.output if result.features is None else result.features
        moving = model.moved(untrained, given.moving)
        if not model.weighs:
            each = vmap(sample_loss)(result.output, found, *batch)
            return (each * given.weights).sum(), moving
        parts = vmap(weighed_loss)(result.output, found, *batch)
        total, weight, more = ((part * given.weights).sum() for part in parts)
        return number((total, weight)) + more, moving

    return loss


def _as_batch(tree: Tree) -> Tree:
    return each(lambda tensor: tensor[None], tree)


def mapped_over_clients(
    loss: Loss, like: LossInputs
) -> Callable[[Vector, LossInputs], tuple[Vector, Tensor, Record]]:
    """Return the clients' gradients, losses and updated buffers as a function of points and inputs.

    `like` shows which parts each client has of its own, with a first axis, and which all clients share.
    """
    axes = LossInputs(
        inputs=0,
        target=0,
        weights=None if like.weights is None else 0,  # type: ignore[arg-type]
        context=transform(_client_axis, like.context),
        fixed=None,  # type: ignore[arg-type]
        moving=transform(_client_axis, like.moving),
    )
    mapped = vmap(grad_and_value(loss, has_aux=True), in_dims=(0, axes))

    def gradients(y: Vector, given: LossInputs) -> tuple[Vector, Tensor, Record]:
        g, (value, moving) = mapped(y, given)
        return g, value, moving

    return gradients


def _client_axis(tensor: Tensor) -> Any:
    """Return the client axis of a tensor; a single vector has none."""
    return 0 if tensor.ndim > 1 else None
