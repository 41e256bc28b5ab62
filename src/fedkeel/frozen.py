"""Frozen, checked values: the decorator behind every method, plug-in, split and schedule.

A value is a dataclass whose arguments are checked when it is made (type, range, unknown names), that
cannot change, compares by content, and whose `repr` is an expression that
`fedkeel.experiments.expression` reads back.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from fedkeel.errors import ConfigError, did_you_mean

T = TypeVar("T")

Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
UnitInterval = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

_CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Make a class a frozen, checked value."""
    made = cast("type[T]", checked_dataclass(frozen=True, config=_CONFIG, repr=False)(cls))
    check = made.__init__
    name = cls.__name__

    def init(self: T, *args: Any, **kwargs: Any) -> None:
        try:
            check(self, *args, **kwargs)
        except ValidationError as problem:
            raise ConfigError(explain_validation(name, made, problem)) from None

    init.__wrapped__ = check  # type: ignore[attr-defined]  # keeps the signature visible
    made.__init__ = init  # type: ignore[assignment]
    if cls.__repr__ is object.__repr__:
        made.__repr__ = show  # type: ignore[method-assign]
    return made


def show(self: object) -> str:
    """Return the value as the expression that makes it."""
    knobs = getattr(self, "__dataclass_fields__", {})
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name, knob in knobs.items() if knob.repr)
    return f"{type(self).__name__}({inside})"


def explain_validation(name: str, cls: type, problem: ValidationError) -> str:
    """Turn a validation error into lines that name the argument, the value and what is allowed."""
    lines = []
    knobs = list(getattr(cls, "__dataclass_fields__", {}))
    for error in problem.errors():
        place = ".".join(knobs[p] if isinstance(p, int) and p < len(knobs) else str(p) for p in error["loc"])
        own = error.get("ctx", {}).get("error")
        if isinstance(own, ConfigError):
            lines.append(str(own))
        elif error["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
            known = knobs or list(getattr(cls, "model_fields", {}))
            lines.append(f"{name} has no argument {place!r}; {did_you_mean(str(error['loc'][-1]), known)}")
        elif error["type"] == "unexpected_positional_argument":
            lines.append(f"{name} takes at most {len(knobs)} arguments: {', '.join(knobs) or 'none'}")
        elif error["type"] in {"missing_argument", "missing"}:
            lines.append(f"{name} needs the argument {place!r}")
        else:
            reason = error["msg"].removeprefix("Value error, ")
            lines.append(f"{name}: {place} = {error['input']!r}: {reason[0].lower()}{reason[1:]}")
    return "\n".join(lines)
