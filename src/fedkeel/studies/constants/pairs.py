"""Pairs of close models of one client's loss, for how the loss at one bounds the loss at the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from fedkeel.studies.constants.landscape import ClientLoss, LossGradient, gaussian
from fedkeel.studies.constants.programs import Floats
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.vector import Vector

_NOISE = 64 * np.finfo(np.float64).eps
_DROWNED = 1e-4  # pairs whose rounding exceeds this share of the largest quotient are left out


class Pair(NamedTuple):
    """Two models U, W: ‖W − U‖, L(U), L(W) − L(U) − ⟨∇L(U), W − U⟩, ‖∇L(W) − ∇L(U)‖², and their rounding."""

    distance: float
    loss: float
    excess: float
    change2: float
    excess_noise: float
    change_noise: float


class Quotients(NamedTuple):
    """The samples in the form of the programs: q + p·c_i ≥ r_i, c = √L(U)/‖W−U‖.

    For semi-smoothness (p, q) = (a, b) and r = excess/‖W−U‖²; for semi-Lipschitz gradients (p, q) = (α², β²)
    and r = ‖∇L(W) − ∇L(U)‖²/‖W−U‖².
    """

    smooth: tuple[Floats, Floats]
    lipschitz: tuple[Floats, Floats]


class SampledPairs(NamedTuple):
    """All pairs around one model, and the largest ‖∇L‖²/L met at its points."""

    pairs: list[Pair]
    steepness: float


class PairSampling(NamedTuple):
    """How far the pairs go (this round's move, the longest one), random directions, a loss that is none."""

    near: float
    far: float
    stream: Stream
    negligible: float


def sample_pairs(
    client_loss: ClientLoss, top: Vector, partners: Sequence[Vector], sampling: PairSampling
) -> SampledPairs:
    """Pair a model of the pilot with points around it, both ways round; `top` is its top curvature."""
    x, here = client_loss.point.x, client_loss.loss_gradient()
    found, ratios = [], [_steepness(here, sampling.negligible)]
    for proposed in _steps(x, here, top, partners, sampling):
        end = x + proposed
        step = end - x  # as rounded: of a tiny step little may be left
        if not bool(step.any()):
            continue
        there = client_loss.moved(end).loss_gradient()
        found += [_pair(here, there, step), _pair(there, here, -step)]
        ratios.append(_steepness(there, sampling.negligible))
    return SampledPairs(found, max(ratios))


def quotients(pairs: Sequence[Pair]) -> Quotients:
    """Bring pairs into the form of the programs; leave out those that drown in rounding."""
    table = np.array(pairs, dtype=np.float64)
    distance, loss, excess, change2, excess_noise, change_noise = table.T
    near = np.sqrt(np.maximum(loss, 0.0)) / distance
    smooth, lipschitz = excess / distance**2, change2 / distance**2
    first = excess_noise / distance**2 <= _DROWNED * max(float(np.max(smooth)), 1e-300)
    second = change_noise / distance**2 <= _DROWNED * max(float(np.max(lipschitz)), 1e-300)
    return Quotients((near[first], smooth[first]), (near[second], lipschitz[second]))


def _steps(
    x: Vector, here: LossGradient, top: Vector, partners: Sequence[Vector], sampling: PairSampling
) -> Iterator[Vector]:
    """Yield steps along the top curvature, down the gradient, at random, and to other models of the pilot."""
    chance = gaussian(sampling.stream, x)
    chance = chance / torch.linalg.vector_norm(chance)
    lengths = dict.fromkeys((sampling.near, sampling.far))
    yield from (sign * length * top for length in lengths for sign in (1, -1))
    yield from (length * chance for length in lengths)
    steep = torch.linalg.vector_norm(here.gradient)
    if float(steep) > 0:
        yield from (-length * here.gradient / steep for length in (0.1 * sampling.near, sampling.near))
    yield from (partner - x for partner in partners)


def _pair(here: LossGradient, there: LossGradient, step: Vector) -> Pair:
    along = float(here.gradient @ step)
    turn = there.gradient - here.gradient
    change2 = float(turn @ turn)
    lengths = float(here.gradient @ here.gradient + there.gradient @ there.gradient)
    return Pair(
        distance=float(torch.linalg.vector_norm(step)),
        loss=here.loss,
        excess=there.loss - here.loss - along,
        change2=change2,
        excess_noise=_NOISE * (abs(here.loss) + abs(there.loss) + abs(along)),
        change_noise=_NOISE * (change2 * lengths) ** 0.5,
    )


def _steepness(at: LossGradient, negligible: float) -> float:
    """Return ‖∇L‖²/L, 0 where the loss is nothing."""
    return float(at.gradient @ at.gradient) / at.loss if at.loss > negligible else 0.0
