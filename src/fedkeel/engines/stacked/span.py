"""Linear models walk in the span of their client's samples.

Every gradient of a linear model is a combination of the client's own samples, so a walk never leaves the span
of those and of the vectors of its plan. There a point, seen from the start, is few numbers: a coefficient for
each vector of the plan (start, bias, momentum) and for each sample and output. Outputs come from the Gram
matrix of the samples, and the step is the very step that other models take, on these coordinates instead of
parameters. With 96 samples of 784 numbers that is an eighth of the arithmetic and of the memory traffic.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from fedkeel.core.oracle import Oracle
from fedkeel.engines.client import weighs_targets
from fedkeel.engines.stacked.ragged import ClientGroup
from fedkeel.engines.stacked.step import (
    Gradient,
    PreparedPlan,
    StackedState,
    StackedStep,
    StepConstants,
    StepScalars,
)
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import Record
from fedkeel.tensors.vector import Vector

_GRAM_CACHE = 2**28  # bytes of Gram matrices that are kept
_LEAST_GAIN = 2.0  # how many times fewer operations make up for changing coordinates twice


class SpanInputs(NamedTuple):
    """What one step takes: its samples' rows of the Gram matrix, targets, weights, who walks, row indices."""

    inputs: Tensor
    target: Tensor
    weights: Tensor | None
    alive: Tensor
    rows: Tensor
    lr: Tensor | None = None


class LinearModel:
    """A model that is one linear layer on fixed features, and the most samples that a client has."""

    def __init__(self, oracle: Oracle, layer: nn.Linear, samples: int) -> None:
        self.layout, self.samples, self.classes = oracle.layout, samples, layer.out_features
        self.biased = layer.bias is not None
        self.features = _without(oracle.module, layer)
        self._grams: OrderedDict[int, Tensor] = OrderedDict()

    def outputs(self, vectors: Tensor, features: Tensor) -> Tensor:
        """Return the outputs (…, samples, classes) of flat vectors (…, d)."""
        if not vectors.any():  # many plans have no bias
            return features.new_zeros(*features.shape[:-1], self.classes)
        weight, *bias = self.layout.views(vectors).values()
        found = (weight @ features.mT).mT  # quicker than features @ weight.mT, which has a short last axis
        return found + bias[0][..., None, :] if bias else found

    def combined(self, coefficients: Tensor, features: Tensor) -> Tensor:
        """Return the flat vectors that are sums of samples with coefficients (…, samples, classes)."""
        weight = (coefficients.mT @ features).flatten(-2)
        return torch.cat([weight, coefficients.sum(-2)], -1) if self.biased else weight

    def gram(self, clients: Sequence[int], features: Tensor) -> Tensor:
        """Return the slots' Gram matrices, zero beyond the clients; some are cached from earlier rounds.

        Each is computed on its own, from a copy of the client's samples: a resumed run, whose cache is empty,
        gets the same bits.
        """
        for slot, client in enumerate(clients):
            if client not in self._grams:
                own = features[slot].clone()
                self._grams[client] = own @ own.mT + float(self.biased)
        for client in clients:
            self._grams.move_to_end(client)
        gram = features.new_zeros(len(features), self.samples, self.samples)
        torch.stack([self._grams[client] for client in clients], out=gram[: len(clients)])
        while len(self._grams) * gram[0].nbytes > _GRAM_CACHE:
            self._grams.popitem(last=False)
        return gram


def linear_model(settings: RunSettings, oracle: Oracle) -> LinearModel | None:
    """Return the task's linear model where walking in the span is exact and faster, else None."""
    layer = _only_layer(oracle)
    if layer is None or settings.federation.augment is not None:
        return None
    if not all(isinstance(part, Tensor) for part in settings.federation.samples(0)):
        return None
    if weighs_targets(settings, oracle):
        return None
    samples = int(settings.federation.sizes.max())
    width = max(settings.work.epoch(samples))
    steps, size = settings.work.count(samples), layer.in_features
    inside = 2 * steps * width * samples + samples * size * (samples / layer.out_features + 3)
    outside = 4 * steps * width * size
    if outside < _LEAST_GAIN * inside or not _is_whole_model(settings, oracle, layer):
        return None
    return LinearModel(oracle, layer, samples)


class SpanWalk:
    """A group's walk, seen from its start, in coordinates of the plan's vectors, samples and classes."""

    def __init__(self, linear: LinearModel, group: ClientGroup, prepared: PreparedPlan) -> None:
        self._linear, self._group, self._prepared = linear, group, prepared
        self._features, self._target = self._samples()
        start, constants = prepared.start, prepared.constants
        self._vectors = [start.y, constants.bias, *([] if start.buffer is None else [start.buffer])]
        outputs = [linear.outputs(vector, self._features) for vector in self._vectors]
        self._gram = linear.gram(group.clients, self._features)
        origin = self._gram.new_zeros(len(self._vectors))
        origin[0] = 1.0
        self.fixed = [self._gram, torch.stack(outputs, 1), origin]

    @staticmethod
    def fits(prepared: PreparedPlan) -> bool:
        """Tell whether the steps take norms of gradients only: in norms of others, large parts may cancel."""
        plain = prepared.start.dual is None and prepared.constants.tilt is None
        return plain and prepared.objective is None and prepared.kind.clip in (None, "gradient")

    def plan(self) -> PreparedPlan:
        """Return the plan in coordinates: each of its vectors is a coordinate of its own.

        The walk begins at zero, and what shrinks the start is part of the bias: beside a coefficient of one
        the small decay of a step would be rounded, the same way in every step.
        """
        size = len(self._vectors) + self._linear.samples * self._linear.classes
        units = self._gram.new_zeros(len(self._vectors), self._group.slots, size)
        for index, unit in enumerate(units):
            unit[:, index] = 1.0
        start, bias, *buffer = units
        before = self._prepared.constants
        shrink = before.with_pull(StepScalars(*before.scalars.unbind()).shrink)
        state = StackedState(torch.zeros_like(start), buffer[0] if buffer else None, None)
        state = state._replace(clipped=self._prepared.start.clipped)
        constants = before._replace(bias=bias + shrink * start)
        return self._prepared._replace(start=state, constants=constants)

    def steps(self, orders: Sequence[Sequence[np.ndarray]]) -> Iterator[SpanInputs]:
        """Yield the steps."""
        samples, slots = self._linear.samples, self._group.slots
        pool = self._gram.flatten(0, 1), self._target
        for window in self._group.windows_over(pool, [samples] * slots, orders):
            rows = (window.indices % samples).unbind()
            for step, own in zip(window.steps(), rows, strict=True):
                yield SpanInputs(step.inputs[0], step.target[0], step.weights, step.alive, own)

    def in_parameters(self, state: StackedState) -> StackedState:
        """Return a state with parameters in place of coordinates."""
        buffer = None if state.buffer is None else self._parameters(state.buffer)
        return state._replace(y=self._prepared.start.y + self._parameters(state.y), buffer=buffer)

    def _parameters(self, coordinates: Tensor) -> Vector:
        count = len(self._vectors)
        coefficients = coordinates[:, count:].view(-1, self._linear.samples, self._linear.classes)
        total = self._linear.combined(coefficients, self._features)
        for index, vector in enumerate(self._vectors):
            total.addcmul_(coordinates[:, index, None], vector)
        return total

    def _samples(self) -> tuple[Tensor, Tensor]:
        """Return the features of the clients' samples, (slots, samples, features), and the targets, flat."""
        federation, most, slots = (
            self._group.runner.settings.training_data,
            self._linear.samples,
            self._group.slots,
        )
        rows = [federation.rows(client) for client in self._group.clients]
        x, y = federation.pick(torch.cat(rows))
        inputs, target = self._group.runner.oracle.to_device((federation.prepare(x), y))
        features: Tensor = self._linear.features(inputs)
        if len(y) < slots * most:
            indices = torch.cat([most * slot + torch.arange(len(own)) for slot, own in enumerate(rows)])
            features, target = (_padded(part, indices, slots * most) for part in (features, target))
        return features.view(slots, most, -1), target


class SpanStep(StackedStep):
    """The step on coordinates; `fixed`: Gram matrices, outputs of the plan's vectors, where the start is."""

    def _gradient(
        self, state: StackedState, inputs: Record, constants: StepConstants, fixed: list[Tensor]
    ) -> Gradient:
        """Return the gradients' coordinates, the losses and no buffers, as a function of coordinates."""
        gram, outputs, origin = fixed
        _, count, samples, classes = outputs.shape
        self._gram, self._count = gram, count
        loss = self._model.oracle.task.training_loss
        indices = inputs.rows[..., None].expand(-1, -1, classes)

        def weighted_loss(output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
            if weights is None:
                return loss(output, target)
            return (vmap(lambda o, t: loss(o[None], t[None]))(output, target) * weights).sum()

        mapped = vmap(grad_and_value(weighted_loss), in_dims=(0, 0, None if inputs.weights is None else 0))

        def gradient(at: Vector, moving: Record) -> tuple[Vector, Tensor, Record]:
            self._model.forwards += 1
            coefficients = at[:, :count] + origin
            of_plan = (coefficients[..., None, None] * outputs).sum(1).gather(1, indices)
            of_samples = torch.bmm(inputs.inputs, at[:, count:].view(-1, samples, classes))
            gradients, losses = mapped(of_plan + of_samples, inputs.target, inputs.weights)
            own = torch.zeros_like(outputs[:, 0]).scatter_add(1, indices, gradients)
            return torch.cat([torch.zeros_like(at[:, :count]), own.flatten(1)], 1), losses, moving

        return gradient

    def _norm(self, vector: Vector) -> Tensor:
        """Return the norms of gradients from their coordinates."""
        own = vector[:, self._count :].view(len(vector), self._gram.shape[-1], -1)
        squares: Tensor = (torch.bmm(self._gram, own) * own).sum((1, 2))
        return squares[:, None].clamp_min(0.0).sqrt()


def _padded(rows: Tensor, indices: Tensor, size: int) -> Tensor:
    return rows.new_zeros((size, *rows.shape[1:])).index_copy_(0, indices.to(rows.device), rows)


def _only_layer(oracle: Oracle) -> nn.Linear | None:
    """Return the linear layer that holds all of a model's parameters and buffers."""
    module = oracle.module
    holders = [part for part in module.modules() if [*part._parameters.values(), *part._buffers.values()]]
    if len(holders) != 1 or type(holders[0]) is not nn.Linear:
        return None
    layer = holders[0]
    return layer if all(parameter.requires_grad for parameter in layer.parameters()) else None


def _without(module: nn.Module, layer: nn.Module) -> nn.Module:
    """Return a copy of the model that gives what it would pass to a layer."""
    if module is layer:
        return nn.Identity()
    name = next(name for name, part in module.named_modules() if part is layer)
    rest = copy.deepcopy(module)
    rest.set_submodule(name, nn.Identity())
    return rest


def _is_whole_model(settings: RunSettings, oracle: Oracle, layer: nn.Linear) -> bool:
    """Try whether the model is this layer, applied once, to features that depend on one sample each."""
    x, y = settings.federation.samples(0)
    inputs, _ = oracle.to_device((settings.federation.prepare(x[:3]), y[:3]))
    features = _without(oracle.module, layer)
    try:
        with torch.no_grad():
            together = features(inputs)
            one_by_one = torch.cat([features(inputs[i : i + 1]) for i in range(len(inputs))])
            return (
                together.ndim == 2
                and torch.equal(one_by_one, together)
                and torch.equal(layer(together), oracle.module(inputs))
            )
    except Exception:  # whatever a user's own model does without its layer: it is not just that layer
        return False
