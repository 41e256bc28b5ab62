"""Pairs of close models of one client's loss, for what ties the loss at one to the loss at the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from fedkeel.streams import Stream
from fedkeel.studies.constants.landscape import Slope, View, gaussian
from fedkeel.studies.constants.programs import Floats
from fedkeel.vector import Vector

_NOISE = 64 * np.finfo(np.float64).eps
_DROWNED = 1e-4  # pairs whose rounding exceeds this share of the largest quotient are left out


class Pair(NamedTuple):
    """Two models U, W: ‖W − U‖, L(U), L(W) − L(U) − ⟨∇L(U), W − U⟩, ‖∇L(W) − ∇L(U)‖², and their rounding."""

    distance: float
    loss: float
    excess: float
    bend2: float
    excess_noise: float
    bend_noise: float


class Quotients(NamedTuple):
    """The samples in the form of the programs: q + p·c_i ≥ r_i, c = √L(U)/‖W−U‖.

    For semi-smoothness (p, q) = (a, b) and r = excess/‖W−U‖²; for semi-Lipschitz gradients (p, q) = (α², β²)
    and r = ‖∇L(W) − ∇L(U)‖²/‖W−U‖².
    """

    smooth: tuple[Floats, Floats]
    lipschitz: tuple[Floats, Floats]


class Star(NamedTuple):
    """All pairs around one model, and the largest ‖∇L‖²/L met at its points."""

    pairs: list[Pair]
    steepness: float


class Reach(NamedTuple):
    """How far the pairs go (this round's move, the longest one), random directions, a loss that is none."""

    near: float
    far: float
    stream: Stream
    negligible: float


def star(view: View, top: Vector, partners: Sequence[Vector], reach: Reach) -> Star:
    """Pair a model of the pilot with points around it, both ways round; `top` is its top curvature."""
    x, here = view.place.x, view.slope()
    found, ratios = [], [_steepness(here, reach.negligible)]
    for wished in _steps(x, here, top, partners, reach):
        end = x + wished
        step = end - x  # as rounded: of a tiny step little may be left
        if not bool(step.any()):
            continue
        there = view.moved(end).slope()
        found += [_pair(here, there, step), _pair(there, here, -step)]
        ratios.append(_steepness(there, reach.negligible))
    return Star(found, max(ratios))


def quotients(pairs: Sequence[Pair]) -> Quotients:
    """Bring pairs into the form of the programs; leave out those that drown in rounding."""
    table = np.array(pairs, dtype=np.float64)
    distance, loss, excess, bend2, excess_noise, bend_noise = table.T
    near = np.sqrt(np.maximum(loss, 0.0)) / distance
    smooth, lipschitz = excess / distance**2, bend2 / distance**2
    first = excess_noise / distance**2 <= _DROWNED * max(float(np.max(smooth)), 1e-300)
    second = bend_noise / distance**2 <= _DROWNED * max(float(np.max(lipschitz)), 1e-300)
    return Quotients((near[first], smooth[first]), (near[second], lipschitz[second]))


def _steps(x: Vector, here: Slope, top: Vector, partners: Sequence[Vector], reach: Reach) -> Iterator[Vector]:
    """Yield steps along the top curvature, down the gradient, at random, and to other models of the pilot."""
    chance = gaussian(reach.stream, x)
    chance = chance / torch.linalg.vector_norm(chance)
    lengths = dict.fromkeys((reach.near, reach.far))
    yield from (sign * length * top for length in lengths for sign in (1, -1))
    yield from (length * chance for length in lengths)
    steep = torch.linalg.vector_norm(here.gradient)
    if float(steep) > 0:
        yield from (-length * here.gradient / steep for length in (0.1 * reach.near, reach.near))
    yield from (partner - x for partner in partners)


def _pair(here: Slope, there: Slope, step: Vector) -> Pair:
    along = float(here.gradient @ step)
    turn = there.gradient - here.gradient
    bend2 = float(turn @ turn)
    lengths = float(here.gradient @ here.gradient + there.gradient @ there.gradient)
    return Pair(
        distance=float(torch.linalg.vector_norm(step)),
        loss=here.loss,
        excess=there.loss - here.loss - along,
        bend2=bend2,
        excess_noise=_NOISE * (abs(here.loss) + abs(there.loss) + abs(along)),
        bend_noise=_NOISE * (bend2 * lengths) ** 0.5,
    )


def _steepness(slope: Slope, negligible: float) -> float:
    """Return ‖∇L‖²/L, 0 where the loss is nothing."""
    return float(slope.gradient @ slope.gradient) / slope.loss if slope.loss > negligible else 0.0
