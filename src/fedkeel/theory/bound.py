"""A bound as a record: its value, the terms it is made of, its conditions and constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from fedkeel.theory.conditions import Condition

Form = Literal["as_printed", "repaired"]
_Value = TypeVar("_Value", int, float)


@dataclass(frozen=True)
class Bound:
    """The value of a theorem's right-hand side for given constants.

    ``value`` is the formula's number even where a condition fails, and ``inf`` where the formula itself
    breaks down (a divisor that is zero or negative); ``guaranteed`` is what the theorem then promises.
    """

    value: float
    terms: Mapping[str, float]
    conditions: tuple[Condition, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        assert not math.isnan(self.value), f"{self.name}: a bound is a number or inf"

    @property
    def holds(self) -> bool:
        """Whether every condition holds."""
        return all(c.holds for c in self.conditions)

    @property
    def violated(self) -> tuple[Condition, ...]:
        """The conditions that fail."""
        return tuple(c for c in self.conditions if not c.holds)

    @property
    def guaranteed(self) -> float:
        """The value where all conditions hold, else ``inf``: the theorem says nothing."""
        return self.value if self.holds else math.inf


class BoundRow(NamedTuple):
    """One line of a table: the parameter's value and the bound there."""

    parameter: str
    at: float
    bound: Bound

    @property
    def record(self) -> dict[str, float | str]:
        """Flat form for reports: parameter, value, guaranteed, each term, the names of what fails."""
        head: dict[str, float | str] = {self.parameter: self.at, "value": self.bound.value}
        head["guaranteed"] = self.bound.guaranteed
        head |= {f"term/{k}": v for k, v in self.bound.terms.items()}
        head["violated"] = "; ".join(c.name for c in self.bound.violated)
        return head


def table(bound: Callable[[_Value], Bound], parameter: str, values: Iterable[_Value]) -> tuple[BoundRow, ...]:
    """Tabulate a bound against one parameter (T, K, N, β).

    >>> rows = table(lambda T: Bound(1 / T, {"decay": 1 / T}), "T", [1, 2, 4])
    >>> [row.bound.value for row in rows]
    [1.0, 0.5, 0.25]
    """
    return tuple(BoundRow(parameter, value, bound(value)) for value in values)


def assemble(
    name: str,
    terms: Mapping[str, float],
    conditions: Iterable[Condition] = (),
    constants: Mapping[str, float] | None = None,
) -> Bound:
    """Sum the terms into a bound; an infinite or undefined term makes it infinite."""
    clean = {k: math.inf if math.isnan(v) else v for k, v in terms.items()}
    value = math.inf if math.inf in clean.values() else math.fsum(clean.values())
    return Bound(value, clean, tuple(conditions), dict(constants or {}), name)


def vacuous(name: str, conditions: Iterable[Condition], constants: Mapping[str, float]) -> Bound:
    """The bound of a formula that breaks down here; one of the conditions must say why."""
    conditions = tuple(conditions)
    assert any(not c.holds for c in conditions), f"{name}: an infinite bound needs its reason"
    return Bound(math.inf, {}, conditions, dict(constants), name)


def printed(form: Form) -> bool:
    """Whether the printed form is asked for; any other word than the two is refused."""
    if form not in ("as_printed", "repaired"):
        raise ValueError(f"form is {form!r}: pass 'as_printed' or 'repaired'")
    return form == "as_printed"


def choose(form: Form, as_printed: float, repaired: float) -> float:
    """Pick the printed or the repaired number."""
    return as_printed if printed(form) else repaired
