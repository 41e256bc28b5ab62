"""Values that `fedkeel.train` takes beside `Execution` and `Evaluation`: what belongs together is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, InstanceOf

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import FrozenValue, declared, frozen
from fedkeel.reducers import Mean, Reducer
from fedkeel.settings.faults import Faults
from fedkeel.settings.options import FaultOptions, RunOptions, Weighting, count_or_fraction


def _check_reducer(reducer: Any) -> Any:
    if isinstance(reducer, type):
        name = reducer.__name__
        raise ConfigError(f"reducer = {name}: that is a class: give an object, as in fk.Median()")
    if not (hasattr(reducer, "add") and hasattr(reducer, "merge")):
        raise ConfigError(f"reducer = {reducer!r} has no add and merge: give one, as in fk.Median()")
    return reducer


if TYPE_CHECKING:
    AnyReducer = Reducer
else:
    AnyReducer = Annotated[Any, BeforeValidator(_check_reducer)]


def _count_or_fraction(clients: Any) -> int | float:
    return count_or_fraction("Bernoulli: clients", clients, example=10)


@frozen
class Bernoulli:
    """Bernoulli participation: in each round, each client takes part with the same probability.

    `clients` is how many take part on average: a count (10) or a fraction of all (0.1).
    """

    clients: Annotated[int | float, BeforeValidator(_count_or_fraction)]

    def described(self) -> dict[str, Any]:
        """Return the plain settings that say the same."""
        return {"cohort": self.clients, "sampling": "bernoulli"}


class Aggregation(FrozenValue):
    """How the server combines the uploads of a round."""

    weighting: Weighting = declared(RunOptions, "weighting")
    reducer: AnyReducer = Field(
        default_factory=Mean,
        description="What combines the uploads: the mean, or a robust rule, as Median() or TrimmedMean(0.2).",
    )


class Failures(FaultOptions, FrozenValue):
    """What happens to a run whose clients fail or whose model diverges."""

    faults: InstanceOf[Faults] | None = Field(
        default=None, description="Clients that fail on purpose, as Faults(drop=0.1); needs skip."
    )
