"""Methods one after another (Rethinking: FedDyn first, then plain FedAvg)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from torch import zeros

from fedkeel.common.errors import ConfigError
from fedkeel.core.algorithm import Algorithm
from fedkeel.tensors.records import leaves

Rule: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], bool]
Until: TypeAlias = int | float | Rule


class Stage(NamedTuple):
    """A method and when it ends: before that round, after that fraction of the rounds, or by a rule.

    A whole number counts rounds and a number with a point is a fraction of them: 1 is one round, 1.0 all.
    With 0 or 0.0 the stage has no round. A rule is asked after each round with the rows of the history so
    far.
    """

    method: Algorithm
    until: Until | None


class Stages(NamedTuple):
    """Methods one after another; x carries over at each change.

    Where two neighbours are the same method with other arguments, the server's and the client states
    carry over too; otherwise they start fresh, with x⁰ the model at the change. `memory` overrides that.
    """

    parts: tuple[Stage, ...]
    memory: Literal["auto", "fresh", "carry"] = "auto"

    def __repr__(self) -> str:
        inside = ", ".join(
            f"({part.method!r}, {part.until!r})" if part.until is not None else repr(part.method)
            for part in self.parts
        )
        return f"stages({inside}, memory={self.memory!r})"

    def fixed(self, rounds: int) -> Stages:
        """Return the stages with fractions turned into rounds, without those that end before they begin."""
        parts, begin = list[Stage](), 0
        for part in self.parts:
            until = round(part.until * rounds) if isinstance(part.until, float) else part.until
            if isinstance(until, int):
                if until <= begin:
                    continue
                begin = until
            parts.append(part._replace(until=until))
        return self._replace(parts=tuple(parts))

    @property
    def needs_horizon(self) -> bool:
        """Tell whether a boundary depends on the total number of rounds."""
        return any(isinstance(part.until, float) for part in self.parts)

    def due(self, stage: int, round: int, history: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether a stage ends before that round, given the rows so far."""
        until = self.parts[stage].until
        if until is None:
            return False
        return until(history) if callable(until) else round >= until

    def carries(self, stage: int) -> bool:
        """Tell whether client states carry over from a stage to the next."""
        before, after = self.parts[stage].method, self.parts[stage + 1].method
        same = _kind(before) == _kind(after)
        if self.memory == "carry" and not same:
            raise ConfigError(f"memory='carry': {before!r} and {after!r} keep different client states")
        return same and self.memory != "fresh"


def stages(
    *parts: Algorithm | tuple[Algorithm, Until], memory: Literal["auto", "fresh", "carry"] = "auto"
) -> Stages:
    """Run methods one after another: `stages((FedDyn(0.1), 0.5), FedAvg())`.

    A method runs until a round (a whole number), a fraction of the rounds (a number with a point: 1.0 is all
    of them, 1 is one round) or a rule. One that ends at round 0, or where the one before it ends, is left
    out: `stages((FedDyn(0.1), 0), FedAvg())` is FedAvg, and with 1.0 in place of 0 it is FedDyn.
    """
    if not parts:
        raise ConfigError("stages() needs methods, as in stages((feddyn, 0.5), fedavg)")
    if memory not in ("auto", "fresh", "carry"):
        raise ConfigError(f"stages: memory={memory!r}: choose auto, fresh or carry")
    made = Stages(
        tuple(Stage(*(part if isinstance(part, tuple) else (part, None))) for part in parts), memory
    )
    for position, part in enumerate(made.parts, start=1):
        if not isinstance(part.method, Algorithm):
            raise ConfigError(f"stages: {part.method!r} is not a method")
        if (part.until is None) != (position == len(parts)):
            raise ConfigError("stages: every method but the last needs its end, as in (FedDyn(), 50)")
        _check_until(part.until)
    _check_order("rounds", [part.until for part in made.parts if isinstance(part.until, int)])
    _check_order("fractions", [part.until for part in made.parts if isinstance(part.until, float)])
    for stage in range(len(made.parts) - 1):
        made.carries(stage)
    return made


def on_each(inner: Algorithm | Stages, wrap: Callable[[Algorithm], Algorithm]) -> Algorithm | Stages:
    """Wrap a method, or each of the methods that run one after another."""
    if isinstance(inner, Stages):
        parts = tuple(part._replace(method=wrap(part.method)) for part in inner.parts)
        return inner._replace(parts=parts)
    if not isinstance(inner, Algorithm):
        raise ConfigError(f"{inner!r} is not a method: give one, as in relaxed(SCAFFOLD(), beta=0.1)")
    return wrap(inner)


def _kind(method: Algorithm) -> tuple[list[type], list[str]]:
    """Return what two methods must share to share memories: their classes and the names of what they keep."""
    x = zeros(2)
    kept = [name for record in (method.init(x), method.init_client(x)) for name, _ in leaves(record)]
    classes = [type(method)]
    while (inner := getattr(method, "inner", None)) is not None:
        classes.append(type(inner))
        method = inner
    return classes, kept


def _check_until(until: object) -> None:
    if isinstance(until, bool) or (isinstance(until, int) and until < 0):
        raise ConfigError(f"stages: until={until!r}: give a round from 0 on, a fraction, or a rule")
    if until is not None and not isinstance(until, int | float) and not callable(until):
        raise ConfigError(f"stages: until={until!r}: give a round from 0 on, a fraction, or a rule")
    if isinstance(until, float) and not 0 <= until <= 1:
        raise ConfigError(f"stages: until={until!r}: a fraction of the rounds lies between 0 and 1")


def _check_order(what: str, ends: Sequence[float]) -> None:
    if list(ends) != sorted(ends):
        raise ConfigError(f"stages: the {what} {list(ends)} must not fall: each stage begins where one ends")


def as_stages(algorithm: Algorithm | Stages) -> Stages:
    """Return any method as stages: a single method is one stage."""
    return algorithm if isinstance(algorithm, Stages) else stages(algorithm)
