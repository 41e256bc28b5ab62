"""What every method shares: how much local work a client does, at which rate, on which minibatches."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Count, Fraction, NonNegative, Positive, UnitInterval, added, frozen
from fedkeel.core.schedules import (
    DecayPerEpoch,
    ScheduleFunction,
    factor_of,
    name_of,
    needs_horizon,
    read_schedule,
    within_round,
)


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
    round r is lr · lr_decay^r · schedule(r); a schedule may also change the rate from step to step.

    `clip` bounds the norm of what `clip_on` names, in a plan with gain, push, pull and decay:

    - "gradient": the minibatch gradient g.
    - "direction": gain·g + push − pull·anchor, as in FL-Simulator and in the FedDyn authors' FedDyn and
      SCAFFOLD. pull·y stays outside, so a clip below pull·‖x‖ drags the model towards zero.
    - "corrected": gain·g + push + pull·(y − anchor) + decay·y, as in the FedDyn authors' FedProx, FedACG and
      pfl. Weight decay is added afterwards.

    `momentum` is local momentum on the whole direction, with an empty buffer at the start of every round, as
    a new torch.optim.SGD(momentum=…, nesterov=…) in each round has it. `optimizer=AdamW()` takes adaptive
    steps instead of plain ones.
    """

    epochs: Count | None = Field(None, description="Local epochs per round.")
    steps: Count | None = Field(None, description="Local steps per round, instead of epochs.")
    batch_size: Count | None = Field(None, description="Minibatch size, or all of a client's data.")
    lr: Positive = Field(0.1, description="Local learning rate.")
    lr_decay: UnitInterval = Field(1.0, description="Factor on the local learning rate after every round.")
    weight_decay: NonNegative = Field(0.0, description="L2 term of every local step.")
    clip: Positive | None = Field(None, description="Largest norm of what clip_on names.")
    clip_on: Literal["gradient", "direction", "corrected"] = Field(
        "gradient",
        description="What is clipped: the minibatch gradient; the direction but for its terms in y (a large "
        "pull then drags the model to zero); or corrected: the direction with them, but for weight decay.",
    )
    schedule: Annotated[ScheduleFunction | None, BeforeValidator(read_schedule)] = Field(
        None, description='Learning-rate schedule, as "Drop(at=50)", "DecayPerEpoch(0.9, 5)" or InverseRoot.'
    )
    last_batch: Literal["keep", "drop", "merge"] = Field(
        "keep", description="What becomes of samples left over at the end of an epoch: keep, drop or merge."
    )
    optimizer: AdamW | None = Field(
        None, description='Kind of local steps, as "AdamW(weight_decay=0.1)"; plain ones by default.'
    )
    momentum: Fraction = added(0.0, "Local momentum, with an empty buffer in every round.")
    nesterov: bool = added(False, "Take that momentum as Nesterov's.")

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
        if self.nesterov and not self.momentum:
            raise ConfigError("Work: nesterov = True: it needs a momentum: give one, as in momentum=0.9")
        if self.optimizer is not None and self.momentum:
            raise ConfigError(
                f"Work: momentum = {self.momentum}: AdamW has moments of its own: leave out momentum, or "
                "the optimizer"
            )
        if isinstance(self.schedule, DecayPerEpoch) and self.schedule.epochs != self.epochs:
            raise ConfigError(
                f"Work: schedule = {self.schedule!r}: the work has "
                f"{'no epochs, but steps' if self.epochs is None else f'epochs = {self.epochs}'}: both must "
                "name the same number of epochs"
            )

    def rate(self, round: int, rounds: int, step: int = 0, steps: int = 1) -> float:
        """Return the learning rate of a round, or of one of its steps."""
        factor = factor_of(self.schedule, round, rounds, step, steps)
        if factor == 0 and not self.varies_within_round:
            raise self._without_rate(round)
        return self.lr * self.lr_decay**round * factor

    def rates(self, round: int, rounds: int, steps: int) -> tuple[float, ...] | None:
        """Return the learning rates of a walk's steps, None where all of them have the rate of the round."""
        if not self.varies_within_round:
            return None
        rates = tuple(self.rate(round, rounds, step, steps) for step in range(steps))
        if not any(rates):
            raise self._without_rate(round)
        return rates

    def _without_rate(self, round: int) -> ConfigError:
        assert self.schedule is not None
        return ConfigError(
            f"schedule = {name_of(self.schedule)}: it gives 0 in every step of round {round}, so no client "
            "would move: let it give a positive factor"
        )

    @property
    def varies_within_round(self) -> bool:
        """Tell whether the steps of a round may have different rates."""
        return within_round(self.schedule)

    @property
    def needs_horizon(self) -> bool:
        """Tell whether the rates may depend on the total number of rounds."""
        return needs_horizon(self.schedule)

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
