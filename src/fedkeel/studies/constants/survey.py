"""What is measured at one place: losses and gradients of all clients, and the noise of minibatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from fedkeel.streams import Stream
from fedkeel.studies.constants.landscape import Landscape, Place, View
from fedkeel.vector import Vector
from fedkeel.work import Work


class Survey(NamedTuple):
    """A place seen from all clients: f = Σ weight·f_i and its parts.

    `spread` is Σ weight·‖∇f_i − ∇f‖² (for a sample of the clients, the unbiased estimate over all), `square`
    is Σ weight·‖∇f_i‖², `along` is ⟨∇f, offset⟩ where an offset was given.
    """

    loss: float
    slope2: float
    losses: tuple[float, ...]
    slopes2: tuple[float, ...]
    square: float
    spread: float
    along: float | None


class Noise(NamedTuple):
    """Minibatch gradients of one client at one place: E‖g − ∇f_i‖², E‖g‖², ‖∇f_i‖² and the longest g."""

    variance: float
    square: float
    slope2: float
    longest: float
    draws: int


def survey(
    landscape: Landscape, place: Place, weights: Sequence[float], population: int, offset: Vector | None
) -> Survey:
    """Take every client's loss and gradient at a place."""
    mean = torch.zeros_like(place.x)
    losses, slopes2 = [], []
    for client, weight in zip(landscape.clients, weights, strict=True):
        loss, gradient = landscape.slope(client, place)
        mean += weight * gradient
        losses.append(loss)
        slopes2.append(float(gradient @ gradient))
    square = sum(w * s for w, s in zip(weights, slopes2, strict=True))
    slope2 = float(mean @ mean)
    seen = len(weights)
    unbias = seen / (seen - 1) * (population - 1) / population if 1 < seen < population else 1.0
    return Survey(
        loss=sum(w * value for w, value in zip(weights, losses, strict=True)),
        slope2=slope2,
        losses=tuple(losses),
        slopes2=tuple(slopes2),
        square=square,
        spread=max(0.0, square - slope2) * unbias,
        along=None if offset is None else float(mean @ offset.double()),
    )


def noise(view: View, work: Work, draws: int, stream: Stream) -> Noise:
    """Draw minibatches as the client does in training and compare their gradients with its full one."""
    whole = view.slope().gradient
    slope2 = float(whole @ whole)
    samples = view.landscape.size(view.client)
    if work.batch_size is None or work.batch_size >= samples:
        return Noise(0.0, slope2, slope2, slope2**0.5, 0)
    order = replace(work, epochs=None, steps=draws).order(samples, stream.numpy())
    variance, square, longest = 0.0, 0.0, slope2**0.5
    for rows in order:
        gradient = view.slope(rows).gradient
        away = gradient - whole
        variance += float(away @ away) / draws
        length2 = float(gradient @ gradient)
        square += length2 / draws
        longest = max(longest, length2**0.5)
    return Noise(variance, square, slope2, longest, draws)
