"""Hostile clients in simulation: who they are, and what they do to their data or to what they send."""

from __future__ import annotations

from fedkeel.attacks.base import Attack, AttackView
from fedkeel.attacks.data import Backdoor, LabelFlip
from fedkeel.attacks.uploads import Collusion, RandomNoise, Scaling, SignFlip

ATTACKS = (SignFlip, RandomNoise, LabelFlip, Scaling, Backdoor, Collusion)

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackView",
    "Backdoor",
    "Collusion",
    "LabelFlip",
    "RandomNoise",
    "Scaling",
    "SignFlip",
]
