"""Schedules: factors on the local learning rate, by round and by local step."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Count, UnitInterval, frozen

ScheduleFunction = Callable[[int, int, int, int], float]


class Schedule(ABC):
    """A factor on the local learning rate: `schedule(round, rounds, step, steps)`, all counted from 0.

    `within_round` says whether the factor differs between the steps of a round. Where it does not, every step
    of the round takes the factor of the first. `needs_horizon` says whether the factor depends on `rounds`:
    such a run cannot be made longer. Both are True unless a schedule says otherwise, and True for a function.
    """

    @property
    def within_round(self) -> bool:
        """Tell whether the factor differs between the steps of a round."""
        return True

    @property
    def needs_horizon(self) -> bool:
        """Tell whether the factor depends on the total number of rounds."""
        return True

    @abstractmethod
    def __call__(self, round: int, rounds: int, step: int = 0, steps: int = 1) -> float:
        """Return the factor of a step."""


def _read_round(given: Any) -> Any:
    """Check a round, or the fraction of the rounds at which it comes."""
    whole = isinstance(given, int) and not isinstance(given, bool) and given >= 1
    if not whole and not (isinstance(given, float) and 0 < given <= 1):
        raise ConfigError(
            f"Drop: at = {given!r}: give a round from 1 on, or a fraction of the rounds as 0.75"
        )
    return given


@frozen
class Drop(Schedule):
    """Multiply the rate by `factor` from round `at` on (Rethinking, Figure 7).

    As in `stages`, a whole number is a round and a number with a point a fraction of all rounds: 0.75.
    """

    at: Annotated[int | float, BeforeValidator(_read_round)]
    factor: UnitInterval = 0.1

    within_round = False  # all steps of a round have one rate

    @property
    def needs_horizon(self) -> bool:
        """Tell whether the drop comes at a fraction of the rounds."""
        return isinstance(self.at, float)

    def __call__(self, round: int, rounds: int, step: int = 0, steps: int = 1) -> float:
        """Return the factor of a round."""
        return self.factor if round >= self.first(rounds) else 1.0

    def first(self, rounds: int) -> int:
        """Return the first round with the lower rate."""
        return round(self.at * rounds) if isinstance(self.at, float) else self.at


@frozen
class InverseTime(Schedule):
    """Divide the rate by the number of the round, counted from one: c/t."""

    within_round = False  # all steps of a round have one rate
    needs_horizon = False  # the round alone decides

    def __call__(self, round: int, rounds: int, step: int = 0, steps: int = 1) -> float:
        """Return the factor of a round."""
        return 1.0 / (round + 1)


@frozen
class InverseRoot(Schedule):
    """Divide the rate by the root of the number of rounds: the 1/√T of the theorems."""

    within_round = False  # all steps of a round have one rate

    def __call__(self, round: int, rounds: int, step: int = 0, steps: int = 1) -> float:
        """Return the factor of a round."""
        return 1.0 / math.sqrt(rounds)


@frozen
class DecayPerRound(Schedule):
    """Multiply the rate by `factor` after every round; `Work(lr_decay=factor)` is the short form."""

    factor: UnitInterval

    within_round = False  # all steps of a round have one rate
    needs_horizon = False  # the round alone decides

    def __call__(self, round: int, rounds: int, step: int = 0, steps: int = 1) -> float:
        """Return the factor of a round."""
        return self.factor**round


@frozen
class DecayPerEpoch(Schedule):
    """Multiply the rate by `factor` after every local epoch, starting anew in each round (FedACG's code).

    `epochs` is the number of local epochs in a round and must equal that of `Work`.
    """

    factor: UnitInterval
    epochs: Count

    @property
    def within_round(self) -> bool:
        """Tell whether a round has more than one epoch."""
        return self.epochs > 1

    needs_horizon = False  # the round alone decides

    def __call__(self, round: int, rounds: int, step: int = 0, steps: int = 1) -> float:
        """Return the factor of a step."""
        return self.factor ** (step * self.epochs // steps)


SCHEDULES = (Drop, InverseTime, InverseRoot, DecayPerRound, DecayPerEpoch)


def read_schedule(given: Any) -> Any:
    """Check that a value can be called as a schedule."""
    if given is None:
        return None
    if isinstance(given, type):
        name = given.__name__
        raise ConfigError(f"Work: schedule = {name}: that is a class: give an object, as in {name}(…)")
    wanted = "a function of (round, rounds, step, steps)"
    if not callable(given):
        names = ", ".join(kind.__name__ for kind in SCHEDULES)
        raise ConfigError(f"Work: schedule = {given!r}: give one of {names}, or {wanted}")
    try:
        inspect.signature(given).bind(0, 1, 0, 1)
    except TypeError as problem:
        raise ConfigError(f"Work: schedule = {given!r}: it must be {wanted}: {problem}") from None
    return given


def within_round(schedule: ScheduleFunction | None) -> bool:
    """Tell whether a schedule may differ between the steps of a round."""
    return schedule is not None and bool(getattr(schedule, "within_round", True))


def needs_horizon(schedule: ScheduleFunction | None) -> bool:
    """Tell whether a schedule may depend on the total number of rounds."""
    return schedule is not None and bool(getattr(schedule, "needs_horizon", True))


def factor_of(schedule: ScheduleFunction | None, round: int, rounds: int, step: int, steps: int) -> float:
    """Return the factor of a step; refuse one that is no rate."""
    if schedule is None:
        return 1.0
    given: Any = schedule(round, rounds, step, steps)
    try:
        factor = float(given)
    except (TypeError, ValueError):
        factor = math.nan
    if not (math.isfinite(factor) and factor >= 0):
        raise ConfigError(
            f"schedule = {name_of(schedule)}: it gives {given!r} in round {round}, step {step}: a factor on "
            "the learning rate is a finite number from 0 on"
        )
    return factor


def name_of(schedule: ScheduleFunction) -> str:
    """Return what a message calls a schedule."""
    return str(getattr(schedule, "__qualname__", None) or repr(schedule))
