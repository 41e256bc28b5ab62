"""What is measured at one model: losses and gradients of all clients, and the noise of minibatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from fedkeel.core.work import Work
from fedkeel.studies.constants.landscape import ClientLoss, LossLandscape, ModelPoint
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.vector import Vector


class GradientMeasurement(NamedTuple):
    """Losses and gradients of all clients at one model: f = Σ weight·f_i and its parts.

    `spread` is Σ weight·‖∇f_i − ∇f‖² (for a sample of the clients, the unbiased estimate over all), `square`
    is Σ weight·‖∇f_i‖², `along` is ⟨∇f, offset⟩ where an offset was given.
    """

    loss: float
    gradient2: float
    losses: tuple[float, ...]
    gradients2: tuple[float, ...]
    square: float
    spread: float
    along: float | None


class MinibatchNoise(NamedTuple):
    """Minibatch gradients of one client at one model: E‖g − ∇f_i‖², E‖g‖², ‖∇f_i‖² and the longest g."""

    variance: float
    square: float
    gradient2: float
    longest: float
    draws: int


class SampleGradients(NamedTuple):
    """Gradients of single samples of one client at one model: the largest ‖g_z‖² and ‖g_z − ∇f_i‖²."""

    longest2: float
    apart2: float
    gradient2: float
    taken: int


def measure_gradients(
    landscape: LossLandscape,
    point: ModelPoint,
    weights: Sequence[float],
    population: int,
    offset: Vector | None,
) -> GradientMeasurement:
    """Take every client's loss and gradient at one model."""
    mean = torch.zeros_like(point.x)
    losses, gradients2 = [], []
    for client, weight in zip(landscape.clients, weights, strict=True):
        loss, gradient = landscape.loss_gradient(client, point)
        mean += weight * gradient
        losses.append(loss)
        gradients2.append(float(gradient @ gradient))
    square = sum(w * s for w, s in zip(weights, gradients2, strict=True))
    gradient2 = float(mean @ mean)
    count = len(weights)
    unbias = count / (count - 1) * (population - 1) / population if 1 < count < population else 1.0
    return GradientMeasurement(
        loss=sum(w * value for w, value in zip(weights, losses, strict=True)),
        gradient2=gradient2,
        losses=tuple(losses),
        gradients2=tuple(gradients2),
        square=square,
        spread=max(0.0, square - gradient2) * unbias,
        along=None if offset is None else float(mean @ offset.double()),
    )


def measure_noise(loss: ClientLoss, work: Work, draws: int, stream: Stream) -> MinibatchNoise:
    """Draw minibatches as the client does in training and compare their gradients with its full one."""
    whole = loss.loss_gradient().gradient
    gradient2 = float(whole @ whole)
    samples = loss.landscape.size(loss.client)
    if work.epoch(samples) == [samples]:
        return MinibatchNoise(0.0, gradient2, gradient2, gradient2**0.5, 0)
    order = replace(work, epochs=None, steps=draws, schedule=None).order(samples, stream.numpy())
    variance, square, longest = 0.0, 0.0, gradient2**0.5
    for rows in order:
        gradient = loss.loss_gradient(rows).gradient
        away = gradient - whole
        variance += float(away @ away) / draws
        length2 = float(gradient @ gradient)
        square += length2 / draws
        longest = max(longest, length2**0.5)
    return MinibatchNoise(variance, square, gradient2, longest, draws)


def measure_samples(loss: ClientLoss, count: int, stream: Stream) -> SampleGradients:
    """Take gradients of at most `count` single samples: half with the largest losses, half at random."""
    whole = loss.loss_gradient().gradient
    values = np.array(loss.landscape.sample_losses(loss.client, loss.point))
    order = np.argsort(-values, kind="stable")
    top, rest = order[: (count + 1) // 2], order[(count + 1) // 2 :]
    rows = np.concatenate([top, stream.numpy().permutation(rest)[: count // 2]])
    longest2 = apart2 = 0.0
    for row in rows:
        gradient = loss.loss_gradient(np.array([row])).gradient
        longest2 = max(longest2, float(gradient @ gradient))
        apart2 = max(apart2, float((gradient - whole) @ (gradient - whole)))
    return SampleGradients(longest2, apart2, float(whole @ whole), len(rows))
