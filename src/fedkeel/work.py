"""What every method shares: how much local work a client does, at which rate, on which minibatches."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from fedkeel.errors import ConfigError
from fedkeel.frozen import Count, NonNegative, Positive, UnitInterval, frozen


def _read_round(given: Any) -> Any:
    """Check a round, or the fraction of the rounds at which it comes."""
    whole = isinstance(given, int) and not isinstance(given, bool) and given >= 1
    if not whole and not (isinstance(given, float) and 0 < given <= 1):
        raise ConfigError(
            f"Drop: at = {given!r}: give a round from 1 on, or a fraction of the rounds as 0.75"
        )
    return given


@frozen
class Drop:
    """Multiply the rate by `factor` from round `at` on (Rethinking, Figure 7).

    As in `stages`, a whole number is a round and a number with a point a fraction of all rounds: 0.75.
    """

    at: Annotated[int | float, BeforeValidator(_read_round)]
    factor: UnitInterval = 0.1

    def __call__(self, round: int, rounds: int) -> float:
        """Return the factor of a round."""
        return self.factor if round >= self.first(rounds) else 1.0

    def first(self, rounds: int) -> int:
        """Return the first round with the lower rate."""
        return round(self.at * rounds) if isinstance(self.at, float) else self.at


@frozen
class InverseTime:
    """Divide the rate by the number of the round, counted from one: c/t."""

    def __call__(self, round: int, rounds: int) -> float:
        """Return the factor of a round."""
        return 1.0 / (round + 1)


@frozen
class InverseRoot:
    """Divide the rate by the root of the number of rounds: the 1/√T of the theorems."""

    def __call__(self, round: int, rounds: int) -> float:
        """Return the factor of a round."""
        return 1.0 / math.sqrt(rounds)


@frozen
class AdamW:
    """Loshchilov and Hutter's adaptive steps, along the direction that the method plans.

    Its moments start at zero in every round. Its weight decay stands in for that of `Work`. For methods that
    use no more of a walk than where it ends: others ask for the sum of its rates, or for its momentum.
    """

    beta1: UnitInterval = 0.9
    beta2: UnitInterval = 0.999
    eps: Positive = 1e-8
    weight_decay: NonNegative = 0.01

    def __post_init__(self) -> None:
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if beta == 1:
                raise ConfigError(f"AdamW: {name} = 1: the average would never move; give a number below 1")


@frozen
class Work:
    """A client's local work in one round.

    Exactly one of `epochs` and `steps`. `batch_size=None` takes the whole data in every step. `last_batch`
    says what becomes of the samples that are left over at the end of an epoch: they are a shorter minibatch
    ("keep"), are left out until the next epoch ("drop"), or join the minibatch before ("merge"). The rate of
    round r is lr · lr_decay^r · schedule(r). `clip` bounds a norm: of the minibatch gradient, or with
    `clip_on="direction"` of gain·g + push − pull·anchor, as FL-Simulator and the authors of FedDyn do.
    `optimizer=AdamW()` takes adaptive steps instead of plain ones.
    """

    epochs: Count | None = None
    steps: Count | None = None
    batch_size: Count | None = None
    lr: Positive = 0.1
    lr_decay: UnitInterval = 1.0
    weight_decay: NonNegative = 0.0
    clip: Positive | None = None
    clip_on: Literal["gradient", "direction"] = "gradient"
    schedule: Drop | InverseTime | InverseRoot | None = None
    last_batch: Literal["keep", "drop", "merge"] = "keep"
    optimizer: AdamW | None = None

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ConfigError(
                "Work takes exactly one of epochs and steps, not "
                f"epochs={self.epochs} and steps={self.steps}: "
                f"{'give one' if self.epochs is None else 'leave one out'}"
            )

        if self.optimizer is not None and self.weight_decay:
            raise ConfigError(
                f"Work: weight_decay = {self.weight_decay}: with AdamW give it there, as in "
                f"optimizer=AdamW(weight_decay={self.weight_decay})"
            )

    def rate(self, round: int, rounds: int) -> float:
        """Return the learning rate of a round."""
        factor = 1.0 if self.schedule is None else self.schedule(round, rounds)
        return self.lr * self.lr_decay**round * factor

    @property
    def needs_horizon(self) -> bool:
        """Tell whether the rates depend on the total number of rounds."""
        schedule = self.schedule
        by_fraction = isinstance(schedule, Drop) and isinstance(schedule.at, float)
        return by_fraction or isinstance(schedule, InverseRoot)

    def count(self, samples: int) -> int:
        """Return how many steps a client with that many samples takes."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return self.epochs * len(self.epoch(samples))

    def epoch(self, samples: int) -> list[int]:
        """Return the sizes of the minibatches of an epoch over that many samples."""
        size = min(self.batch_size or samples, samples)
        whole, left = divmod(samples, size)
        sizes = [size] * whole
        if left and self.last_batch == "keep":
            sizes.append(left)
        elif self.last_batch == "merge":
            sizes[-1] += left
        return sizes

    def order(self, samples: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw the minibatches of a walk: indices of samples, one array per step."""
        count, sizes = self.count(samples), self.epoch(samples)
        if sizes == [samples]:
            return [np.arange(samples)] * count
        bounds = [*pairwise(accumulate(sizes, initial=0))]
        batches: list[np.ndarray] = []
        while len(batches) < count:
            shuffled = rng.permutation(samples)
            batches += [shuffled[start:end] for start, end in bounds]
        return batches[:count]
