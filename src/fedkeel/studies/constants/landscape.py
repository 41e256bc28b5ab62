"""The clients' losses as functions of a flat vector, in float64: values, gradients, curvature."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedkeel.core.losses import known_loss
from fedkeel.core.weighted import holds_padding, number
from fedkeel.data.samples import Batch
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.layout import Layout, float_buffers, trainable
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.trees import Tree, call_at, count, each, part, split, take, tensors
from fedkeel.tensors.vector import Vector

_CHUNK = 1000
_SETTLED = 1e-5  # relative change at which the power iteration stops


class ModelPoint(NamedTuple):
    """A model: its parameters and its float buffers."""

    x: Vector
    buffers: Vector


class LossGradient(NamedTuple):
    """A client's loss at a model and its gradient."""

    loss: float
    gradient: Vector


class LossLandscape:
    """The losses of some clients, each on at most `samples` of its own samples, as stored (no augmentation).

    The model is in evaluation mode, so a loss is one fixed function: no dropout, and BatchNorm takes the
    statistics the pilot had at that model. Float64 keeps second differences of close points above rounding.
    """

    def __init__(
        self,
        settings: RunSettings,
        device: torch.device,
        clients: Sequence[int],
        samples: int,
        stream: Stream,
    ) -> None:
        self.loss = settings.task.loss
        self.module = copy.deepcopy(settings.task.module).to(device).double().eval()
        self.layout = Layout.of(trainable(self.module))
        self.buffer_layout = Layout.of(float_buffers(self.module))
        self.clients = tuple(clients)
        self.data = {client: _data(settings, client, samples, stream, device) for client in clients}

    def point(self, x: Vector, buffers: Vector) -> ModelPoint:
        """Return a model in this landscape's precision."""
        return ModelPoint(x.detach().double().clone(), buffers.detach().double().clone())

    def size(self, client: int) -> int:
        """Return how many of a client's samples are used."""
        return count(self.data[client][1])

    def loss_gradient(self, client: int, point: ModelPoint, rows: np.ndarray | None = None) -> LossGradient:
        """Return a client's loss and gradient, over all its samples or over some rows of them."""
        x = point.x.detach().requires_grad_()
        value, total = 0.0, torch.zeros_like(point.x)
        for inputs, target, share in self._parts(client, rows):
            loss = self._loss(x, point.buffers, inputs, target) * share
            total += torch.autograd.grad(loss, x)[0]
            value += float(loss.detach())
        return LossGradient(value, total)

    def hessian_product(self, client: int, point: ModelPoint, direction: Vector) -> Vector:
        """Return the Hessian of a client's loss times a direction, by differentiating twice."""
        x = point.x.detach().requires_grad_()
        total = torch.zeros_like(point.x)
        for inputs, target, share in self._parts(client, None):
            loss = self._loss(x, point.buffers, inputs, target) * share
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            if gradient.requires_grad:  # a piecewise linear loss has none
                (found,) = torch.autograd.grad(gradient, x, direction, allow_unused=True)
                total += 0.0 if found is None else found
        return total

    @torch.no_grad()
    def sample_losses(self, client: int, point: ModelPoint) -> list[float]:
        """Return the loss of each sample of a client."""
        found = []
        for inputs, target, _ in self._parts(client, None):
            output = self._output(point.x, point.buffers, inputs)
            singles = ((part(output, i, i + 1), part(target, i, i + 1)) for i in range(count(target)))
            found += [float(number(self.loss(*single))) for single in singles]
        return found

    def _loss(self, x: Vector, buffers: Vector, inputs: Tree, target: Tree) -> Tensor:
        found: Tensor = number(self.loss(self._output(x, buffers, inputs), target))
        return found

    def _output(self, x: Vector, buffers: Vector, inputs: Tree) -> Any:
        parameters = {**self.layout.views(x), **self.buffer_layout.views(buffers)}
        return call_at(self.module, parameters, inputs)

    def _parts(self, client: int, rows: np.ndarray | None) -> list[tuple[Tree, Tree, float]]:
        inputs, target = self.data[client]
        if rows is not None:
            chosen = torch.from_numpy(rows).to(tensors(target)[0].device)
            inputs, target = take(inputs, chosen), take(target, chosen)
        whole = count(target)
        known = known_loss(self.loss)
        may_be_cut = known is not None and known.is_mean_over_samples and not holds_padding(self.loss, target)
        size = _CHUNK if may_be_cut else whole
        chunks = zip(split(inputs, size), split(target, size), strict=True)
        return [(x, y, count(y) / whole) for x, y in chunks]


class ClientLoss(NamedTuple):
    """One client's loss at one model."""

    landscape: LossLandscape
    client: int
    point: ModelPoint

    def loss_gradient(self, rows: np.ndarray | None = None) -> LossGradient:
        """Return loss and gradient here, over all of the client's samples or over some rows of them."""
        return self.landscape.loss_gradient(self.client, self.point, rows)

    def moved(self, x: Vector) -> ClientLoss:
        """Return the same client's loss at other parameters."""
        return self._replace(point=self.point._replace(x=x))


class Curvature(NamedTuple):
    """The eigenvalue of a Hessian that is largest in size, its direction, and the products it took."""

    size: float
    direction: Vector
    products: int


def power_iteration(loss: ClientLoss, start: Vector, most: int, settled: float = _SETTLED) -> Curvature:
    """Find the top curvature of a client's loss at a point by at most `most` Hessian-vector products."""
    direction, size = start / torch.linalg.vector_norm(start), 0.0
    for step in range(1, most + 1):
        product = loss.landscape.hessian_product(loss.client, loss.point, direction)
        found = float(torch.linalg.vector_norm(product))
        if found == 0.0:
            return Curvature(0.0, direction, step)
        direction, before, size = product / found, size, found
        if abs(size - before) <= settled * size:
            return Curvature(size, direction, step)
    return Curvature(size, direction, most)


def gaussian(stream: Stream, like: Vector) -> Vector:
    """Draw a standard normal vector."""
    drawn = torch.from_numpy(stream.numpy().standard_normal(like.numel()))
    return drawn.to(like)


def _data(settings: RunSettings, client: int, samples: int, stream: Stream, device: torch.device) -> Batch:
    """Return (at most) that many samples of a client in float64, ready for the model."""
    x, y = settings.federation.samples(client)
    size = count(y)
    if size > samples:
        order = stream.branch("samples", client).numpy().permutation(size)[:samples]
        chosen = torch.from_numpy(np.sort(order))
        x, y = take(x, chosen), take(y, chosen)
    inputs = each(lambda one: _in_float64(one.to(device), bytes_too=True), settings.federation.prepare(x))
    return inputs, each(lambda one: _in_float64(one.to(device)), y)


def _in_float64(tensor: Tensor, *, bytes_too: bool = False) -> Tensor:
    real = tensor.is_floating_point() or (bytes_too and tensor.dtype == torch.uint8)
    return tensor.double() if real else tensor
