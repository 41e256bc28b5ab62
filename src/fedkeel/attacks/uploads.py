"""Attacks on what hostile clients send. Lengths and buffers stay what they are: servers can check those."""

from __future__ import annotations

import torch
from torch import Tensor

from fedkeel.attacks.base import Attack, AttackView, changed_parts
from fedkeel.common.frozen import Positive, Proportion, Seed, frozen
from fedkeel.tensors.records import Record
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.vector import norm


@frozen
class SignFlip(Attack):
    """Send the opposite, −scale·upload: the hostile clients climb where the others descend."""

    share: Proportion = 0.2
    scale: Positive = 1.0
    seed: Seed | None = None

    def send(self, upload: Record, view: AttackView) -> Record:
        """Turn it round."""
        return changed_parts(upload, lambda _, part: -self.scale * part)


@frozen
class Scaling(Attack):
    """Send factor·upload (Bagdasaryan et al. 2020): a few clients outweigh the others in a mean."""

    share: Proportion = 0.2
    factor: Positive = 10.0
    seed: Seed | None = None

    def send(self, upload: Record, view: AttackView) -> Record:
        """Make it longer."""
        return changed_parts(upload, lambda _, part: self.factor * part)


@frozen
class RandomNoise(Attack):
    """Add Gaussian noise of standard deviation sigma to every number of the upload."""

    share: Proportion = 0.2
    sigma: Positive = 1.0
    seed: Seed | None = None

    def send(self, upload: Record, view: AttackView) -> Record:
        """Add noise that is keyed by the round and the client."""
        stream = view.stream.branch("noise", view.round, view.client)
        return changed_parts(upload, lambda name, part: part + self.sigma * _normal(stream, name, part))


@frozen
class Collusion(Attack):
    """Send copies of one upload: a direction that the hostile clients drew together, of norm strength·‖x‖.

    The direction is the same in all rounds, so what they do adds up; x is the broadcast model, which all of
    them know. Copies are each other's nearest neighbours, which rules that look for a dense place fall for.
    """

    share: Proportion = 0.2
    strength: Positive = 1.0
    seed: Seed | None = None

    def send(self, upload: Record, view: AttackView) -> Record:
        """Forget the upload."""
        length = self.strength * norm(view.x)

        def agreed(name: str, part: Tensor) -> Tensor:
            direction = _normal(view.stream.branch("collusion"), name, part)
            return length * direction / norm(direction)

        return changed_parts(upload, agreed)


def _normal(stream: Stream, name: str, like: Tensor) -> Tensor:
    """Draw normal numbers for a part of an upload: the same on every device."""
    generator = torch.Generator().manual_seed(stream.branch(name).integer())
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)
