"""Simulated faults: clients that fail on purpose, to study methods under drop-outs.

Which client fails in which round, and how, is drawn from (seed, round, client) alone: it changes no other
randomness of a run, and no engine, no resume and no other client changes it.
"""

from __future__ import annotations

from typing import Literal

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Proportion, Seed, frozen
from fedkeel.tensors.streams import Stream

Fault = Literal["drop", "straggle", "crash", "corrupt"]
Damage = Literal["nan", "inf", "shape", "huge"]
FAULTS: tuple[Fault, ...] = ("drop", "straggle", "crash", "corrupt")


@frozen
class Faults:
    """How likely a client of a round fails, and how; at most in one of these ways.

    `drop`: it never answers. `straggle`: it takes too long and is skipped at its deadline; nobody waits.
    `crash`: it raises an exception in the middle of its work. `corrupt`: what it sends is NaN, infinite, of
    a wrong shape, or, where the run has `max_upload_norm`, far too large; the checks of uploads catch it.
    """

    drop: Proportion = 0.0
    straggle: Proportion = 0.0
    crash: Proportion = 0.0
    corrupt: Proportion = 0.0
    seed: Seed = 0

    def __post_init__(self) -> None:
        total = sum(getattr(self, name) for name in FAULTS)
        if total > 1 + 1e-9:
            raise ConfigError(
                f"Faults: drop + straggle + crash + corrupt = {total:g}: a client fails in one way at most, "
                "so give probabilities that sum to at most 1"
            )

    def of(self, round: int, client: int) -> Fault | None:
        """Return how a client fails in a round, None where it does not."""
        drawn = float(self._stream(round, client).numpy().random())
        for name in FAULTS:
            drawn -= getattr(self, name)
            if drawn < 0:
                return name
        return None

    def damage(self, round: int, client: int, *, bounded: bool) -> Damage:
        """Return what is wrong with a corrupt upload; too large it is only where a bound would catch it."""
        kinds: tuple[Damage, ...] = ("nan", "inf", "shape", "huge") if bounded else ("nan", "inf", "shape")
        return kinds[self._stream(round, client).branch("damage").integer() % len(kinds)]

    def _stream(self, round: int, client: int) -> Stream:
        return Stream(self.seed).branch("fault", round, client)
