"""Linear models walk in the span of their client's samples.

Every gradient of a linear model is a combination of the client's own samples, so a walk never leaves the span
of those and of the vectors of its plan. There a point is few numbers: a weight for each vector of the plan
(start, bias, momentum) and for each sample and output. Outputs come from the Gram matrix of the samples, and
the step is the very step that other models take, on these coordinates instead of parameters. With 96 samples
of 784 numbers that is an eighth of the arithmetic and of the memory traffic.
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

from fedkeel.engines.stacked.ragged import Group
from fedkeel.engines.stacked.step import Gradient, Route, State, Step, Words
from fedkeel.oracle import Oracle
from fedkeel.records import Record
from fedkeel.settings import RunSettings
from fedkeel.vector import Vector

_REMEMBERED = 2**28  # bytes of Gram matrices
_WORTH = 2.0  # how many times fewer operations make up for the way into the span and back


class SpanFeed(NamedTuple):
    """What one step takes: its samples' rows of the Gram matrix, their targets, who walks, their places."""

    inputs: Tensor
    target: Tensor
    weights: Tensor | None
    alive: Tensor
    rows: Tensor


class Linear:
    """A model that is one linear layer on fixed features, and the most samples that a client has."""

    def __init__(self, oracle: Oracle, layer: nn.Linear, samples: int) -> None:
        self.layout, self.samples, self.outputs = oracle.layout, samples, layer.out_features
        self.biased = layer.bias is not None
        self.features = _without(oracle.module, layer)
        self._grams: OrderedDict[int, Tensor] = OrderedDict()

    def at(self, vectors: Tensor, features: Tensor) -> Tensor:
        """Return the outputs (…, samples, outputs) of flat vectors (…, d)."""
        if not vectors.any():  # many plans have no bias
            return features.new_zeros(*features.shape[:-1], self.outputs)
        weight, *bias = self.layout.views(vectors).values()
        found = (weight @ features.mT).mT  # quicker than features @ weight.mT, which has a short last axis
        return found + bias[0][..., None, :] if bias else found

    def sums(self, factors: Tensor, features: Tensor) -> Tensor:
        """Return the flat vectors that add up samples, each by a factor (…, samples, outputs) an output."""
        weight = (factors.mT @ features).flatten(-2)
        return torch.cat([weight, factors.sum(-2)], -1) if self.biased else weight

    def gram(self, clients: Sequence[int], features: Tensor) -> Tensor:
        """Return the slots' Gram matrices, zero beyond the clients; some are known from rounds before.

        Each is made alone, from samples in memory of their own: a resumed run, which remembers none, gets
        the same bits.
        """
        for place, client in enumerate(clients):
            if client not in self._grams:
                own = features[place].clone()
                self._grams[client] = own @ own.mT + float(self.biased)
        for client in clients:
            self._grams.move_to_end(client)
        gram = features.new_zeros(len(features), self.samples, self.samples)
        torch.stack([self._grams[client] for client in clients], out=gram[: len(clients)])
        while len(self._grams) * gram[0].nbytes > _REMEMBERED:
            self._grams.popitem(last=False)
        return gram


def linear_walk(settings: RunSettings, oracle: Oracle) -> Linear | None:
    """Return the task's linear model where walking in the span is exact and worth it, else None."""
    layer = _only_layer(oracle)
    if layer is None or settings.federation.augment is not None:
        return None
    samples = int(settings.federation.sizes.max())
    width = min(settings.work.batch_size or samples, samples)
    steps, size = settings.work.count(samples), layer.in_features
    inside = 2 * steps * width * samples + samples * size * (samples / layer.out_features + 3)
    outside = 4 * steps * width * size
    if outside < _WORTH * inside or not _is_all(settings, oracle, layer):
        return None
    return Linear(oracle, layer, samples)


class Span:
    """A group's walk in coordinates: of the plan's vectors, then of every sample and output."""

    def __init__(self, linear: Linear, group: Group, ready: Route) -> None:
        self._linear, self._group, self.ready = linear, group, ready
        self._features, self._target = self._samples()
        start, words = ready.start, ready.words
        self._vectors = [start.y, words.bias, *([] if start.buffer is None else [start.buffer])]
        outputs = [linear.at(vector, self._features) for vector in self._vectors]
        self._gram = linear.gram(group.clients, self._features)
        self.fixed = [self._gram, torch.stack(outputs, 1)]

    @staticmethod
    def fits(ready: Route) -> bool:
        """Tell whether all that the steps measure are lengths of gradients: others may cancel out."""
        plain = ready.start.dual is None and ready.words.tilt is None and ready.objective is None
        return plain and ready.kind.clip != "direction"

    def route(self) -> Route:
        """Return the plan in coordinates: each of its vectors is a coordinate of its own."""
        size = len(self._vectors) + self._linear.samples * self._linear.outputs
        units = self._gram.new_zeros(len(self._vectors), self._group.slots, size)
        for place, unit in enumerate(units):
            unit[:, place] = 1.0
        y, bias, *buffer = units
        state = State(y, buffer[0] if buffer else None, None)
        return self.ready._replace(start=state, words=Words(bias, None, self.ready.words.numbers, None))

    def feeds(self, orders: Sequence[Sequence[np.ndarray]]) -> Iterator[SpanFeed]:
        """Yield the steps."""
        samples, slots = self._linear.samples, self._group.slots
        for window in self._group.laid_out(
            (self._gram.flatten(0, 1), self._target), [samples] * slots, orders
        ):
            rows = (window.places % samples).unbind()
            yield from (SpanFeed(*feed, own) for feed, own in zip(window.feeds(), rows, strict=True))

    def out(self, state: State) -> State:
        """Return the parameters of a state's coordinates."""
        buffer = None if state.buffer is None else self._parameters(state.buffer)
        return State(self._parameters(state.y), buffer, None)

    def _parameters(self, coordinates: Tensor) -> Vector:
        count = len(self._vectors)
        factors = coordinates[:, count:].view(-1, self._linear.samples, self._linear.outputs)
        total = self._linear.sums(factors, self._features)
        for place, vector in enumerate(self._vectors):
            total.addcmul_(coordinates[:, place, None], vector)
        return total

    def _samples(self) -> tuple[Tensor, Tensor]:
        """Return the features of the clients' samples, (slots, samples, features), and flat their targets."""
        federation, most, slots = self._group.settings.federation, self._linear.samples, self._group.slots
        rows = [federation.rows(client) for client in self._group.clients]
        x, y = federation.pick(torch.cat(rows))
        inputs, target = self._group.oracle.to_device((federation.prepare(x), y))
        features: Tensor = self._linear.features(inputs)
        if len(y) < slots * most:
            places = torch.cat([most * slot + torch.arange(len(own)) for slot, own in enumerate(rows)])
            features, target = (_spread(part, places, slots * most) for part in (features, target))
        return features.view(slots, most, -1), target


class SpanStep(Step):
    """The step on coordinates: `fixed` are the Gram matrices and the outputs of the plan's vectors."""

    def _gradient(self, state: State, feed: Record, words: Words, fixed: list[Tensor]) -> Gradient:
        """Return the gradients' coordinates, the losses and nothing moved, as a function of coordinates."""
        gram, outputs = fixed
        _, count, samples, classes = outputs.shape
        self._gram, self._count = gram, count
        loss = self._net.oracle.task.loss
        places = feed.rows[..., None].expand(-1, -1, classes)

        def weighed(output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
            if weights is None:
                return loss(output, target)
            return (vmap(lambda o, t: loss(o[None], t[None]))(output, target) * weights).sum()

        mapped = vmap(grad_and_value(weighed), in_dims=(0, 0, None if feed.weights is None else 0))

        def gradient(at: Vector, moving: Record) -> tuple[Vector, Tensor, Record]:
            self._net.looks += 1
            known = (at[:, :count, None, None] * outputs).sum(1).gather(1, places)
            found = torch.bmm(feed.inputs, at[:, count:].view(-1, samples, classes))
            slopes, losses = mapped(known + found, feed.target, feed.weights)
            own = torch.zeros_like(outputs[:, 0]).scatter_add(1, places, slopes)
            return torch.cat([torch.zeros_like(at[:, :count]), own.flatten(1)], 1), losses, moving

        return gradient

    def _length(self, vector: Vector) -> Tensor:
        """Return the norms of gradients from their coordinates."""
        own = vector[:, self._count :].view(len(vector), self._gram.shape[-1], -1)
        squares: Tensor = (torch.bmm(self._gram, own) * own).sum((1, 2))
        return squares[:, None].clamp_min(0.0).sqrt()


def _spread(rows: Tensor, places: Tensor, size: int) -> Tensor:
    return rows.new_zeros((size, *rows.shape[1:])).index_copy_(0, places.to(rows.device), rows)


def _only_layer(oracle: Oracle) -> nn.Linear | None:
    """Return the linear layer that holds all of a model's parameters and buffers."""
    module = oracle.module
    holders = [part for part in module.modules() if [*part._parameters.values(), *part._buffers.values()]]
    if len(holders) != 1 or type(holders[0]) is not nn.Linear:
        return None
    layer = holders[0]
    return layer if all(parameter.requires_grad for parameter in layer.parameters()) else None


def _without(module: nn.Module, layer: nn.Module) -> nn.Module:
    """Return a copy of the model that gives what it would hand to a layer."""
    if module is layer:
        return nn.Identity()
    name = next(name for name, part in module.named_modules() if part is layer)
    rest = copy.deepcopy(module)
    rest.set_submodule(name, nn.Identity())
    return rest


def _is_all(settings: RunSettings, oracle: Oracle, layer: nn.Linear) -> bool:
    """Try whether the model is the layer, once, on features that are each sample's own."""
    x, y = settings.federation.samples(0)
    inputs, _ = oracle.to_device((settings.federation.prepare(x[:3]), y[:3]))
    features = _without(oracle.module, layer)
    try:
        with torch.no_grad():
            given = features(inputs)
            alone = torch.cat([features(inputs[place : place + 1]) for place in range(len(inputs))])
            return (
                given.ndim == 2
                and torch.equal(alone, given)
                and torch.equal(layer(given), oracle.module(inputs))
            )
    except Exception:  # whatever a user's own model does without its layer: it is not just that layer
        return False
