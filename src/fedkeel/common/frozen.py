"""Frozen, checked values: the decorator behind every method, plug-in, split and schedule.

A value is a dataclass whose arguments are checked when it is made (type, range, unknown names), that
cannot change, compares by content, and whose `repr` is an expression that
`fedkeel.experiments.expression` reads back.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic.fields import FieldInfo

from fedkeel.common.errors import ConfigError, FedkeelError, did_you_mean

_SHOWN = 200  # characters of a value in a message

_QUIET = "quiet at its default"
_WORDS = {float: "a number", int: "a whole number", bool: "True or False", NoneType: "None"}

T = TypeVar("T")


def _no_bool(given: Any) -> Any:
    """Refuse True and False, which Python takes for 1 and 0."""
    if isinstance(given, bool):
        raise ValueError("give a number")
    return given


_Real = Annotated[float, BeforeValidator(_no_bool)]
_Whole = Annotated[int, BeforeValidator(_no_bool)]
Number = Annotated[_Real, Field(allow_inf_nan=False)]
Positive = Annotated[_Real, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[_Real, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[_Real, Field(ge=0, lt=1, allow_inf_nan=False)]
OpenFraction = Annotated[_Real, Field(gt=0, lt=1, allow_inf_nan=False)]
Proportion = Annotated[_Real, Field(ge=0, le=1, allow_inf_nan=False)]
UnitInterval = Annotated[_Real, Field(gt=0, le=1, allow_inf_nan=False)]
OpenInterval = Annotated[_Real, Field(gt=0, lt=1, allow_inf_nan=False)]
BelowHalf = Annotated[_Real, Field(ge=0, lt=0.5, allow_inf_nan=False)]
Count = Annotated[_Whole, Field(ge=1)]
Seed = Annotated[_Whole, Field(ge=0)]
AsGiven = Annotated[T, SkipValidation()]  # kept as it was written, and so shown: `__post_init__` checks it

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
            raise _own_error(problem) or ConfigError(explain(problem, made, call=name)) from None

    init.__wrapped__ = check  # type: ignore[attr-defined]  # keeps the signature visible
    made.__init__ = init  # type: ignore[assignment]
    if cls.__repr__ is object.__repr__:
        made.__repr__ = show  # type: ignore[method-assign]
    return made


def _own_error(problem: ValidationError) -> FedkeelError | None:
    """Return the error that a check of fedkeel's has raised, where there is no other."""
    found = [error.get("ctx", {}).get("error") for error in problem.errors()]
    return found[0] if len(found) == 1 and isinstance(found[0], FedkeelError) else None


def show(self: object) -> str:
    """Return the value as the expression that makes it."""
    shown = {name: value for name, (value, knob) in _told(self).items() if knob.repr}
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def _told(value: Any) -> dict[str, tuple[Any, Any]]:
    """Return the arguments of a value, each with its field, without those that came later and are not set."""
    knobs = getattr(value, "__dataclass_fields__", {})
    given = {name: (getattr(value, name), knob) for name, knob in knobs.items()}
    return {
        name: (own, knob)
        for name, (own, knob) in given.items()
        if not (_QUIET in knob.metadata and own == getattr(knob.default, "default", knob.default))
    }


def told(value: Any) -> dict[str, Any]:
    """Return the arguments by which a value is known: see `added`."""
    return {name: own for name, (own, _) in _told(value).items()}


def added(default: Any, description: str | None = None) -> Any:
    """Declare an argument that came later: at its default, `repr` leaves it out.

    A run is known by its method's `repr`, so runs that were begun before the argument existed can go on.
    """
    declared = default if description is None else Field(default, description=description)
    return dataclasses.field(default=declared, metadata={_QUIET: True})


def allowed(
    kind: Any,
    limits: Sequence[Any],
    words: Mapping[Any, str] = _WORDS,
    written: Callable[[Any], str] = repr,
) -> str:
    """Say in words what an argument may be, from its type and the limits beside it.

    `words` names types; `written` writes the choices of a literal.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        more = (limit for part in parts[1:] for limit in getattr(part, "metadata", [part]))
        return allowed(parts[0], [*limits, *more], words, written)
    if origin is Literal:
        return " or ".join(map(written, parts))
    if origin in (UnionType, Union):
        return ", ".join(allowed(part, [], words, written) for part in parts)
    bounds = [
        f"{sign} {getattr(limit, name):g}"
        for name, sign in (("gt", "above"), ("ge", "from"), ("lt", "below"), ("le", "up to"))
        for limit in limits
        if getattr(limit, name, None) is not None
    ]
    return " ".join([words.get(kind, getattr(kind, "__name__", str(kind))), *bounds])


class FrozenModel(BaseModel):
    """Base of frozen, checked values that are read from files: strict types, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)

    if not TYPE_CHECKING:  # pydantic's plugin makes a typed signature for the checker

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as problem:
                raise ConfigError(explain(problem, type(self))) from None


class FrozenValue(FrozenModel):
    """Base of frozen, checked values that a user writes as a call, as `Execution("stacked")`.

    A field that is declared with `kw_only=False` may be given by its place. `repr` shows what is not as by
    default. The help text of the fields joins the docstring.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Write the docstring and the signature that `help` shows."""
        super().__pydantic_init_subclass__(**options)
        told = [f"- `{name}`: {field.description}" for name, field in cls.model_fields.items()]
        cls.__doc__ = "\n".join([inspect.getdoc(cls) or "", "", *told])
        cls.__signature__ = Signature([_parameter(name, field) for name, field in cls.model_fields.items()])

    if not TYPE_CHECKING:

        def __init__(self, *placed: Any, **given: Any) -> None:
            kind, fields = type(self), type(self).model_fields
            places = [name for name, field in fields.items() if field.kw_only is False]
            if len(placed) > len(places):
                keywords = ", ".join(f"{name}=…" for name in fields if name not in places)
                raise ConfigError(
                    f"{kind.__name__}: {placed[len(places)]!r}: give it by keyword, as one of {keywords}"
                )
            try:
                BaseModel.__init__(self, **dict(zip(places, placed, strict=False)), **given)
            except ValidationError as problem:
                raise ConfigError(explain(problem, kind, call=kind.__name__)) from None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield what is not as by default."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.get_default(call_default_factory=True):
                yield name, value

    def __str__(self) -> str:
        return repr(self)


def _parameter(name: str, field: FieldInfo) -> Parameter:
    kind = Parameter.POSITIONAL_OR_KEYWORD if field.kw_only is False else Parameter.KEYWORD_ONLY
    return Parameter(name, kind, default=field.get_default(call_default_factory=True))


def declared(cls: type[BaseModel], name: str) -> Any:
    """Return the field of a class to declare it again under another name: its default and its help text."""
    field = cls.model_fields[name]
    return Field(field.default, description=field.description)


def explain(problem: ValidationError, cls: type, call: str | None = None) -> str:
    """Turn a validation error into lines that name the argument or key, the value and what is allowed.

    `call` is the name of what was called with arguments; without it the values are keys of a table.
    """
    errors = problem.errors()
    lines = [_explain_choice(error, errors, cls, call) or _explain(error, cls, call) for error in errors]
    return "\n".join(dict.fromkeys(lines))


def _explain_choice(error: Any, errors: Sequence[Any], cls: type, call: str | None) -> str | None:
    """Say in one line what an argument may be that takes values of several types; None for another error."""
    name, *kind = error["loc"] or ("",)
    kinds = [e["loc"][1] for e in errors if e["loc"][:1] == (name,) and len(e["loc"]) == 2]
    if call is None or len(kind) != 1 or len(kinds) < 2 or not all(isinstance(one, str) for one in kinds):
        return None
    known = [one if one[0].isupper() and one.isidentifier() else "a finite number" for one in kinds]
    shown = _fields(cls, ())[name] if isinstance(name, int) else name
    return f"{call}: {shown} = {error['input']!r}: give {' or '.join(dict.fromkeys(known))}"


def _explain(error: Any, cls: type, call: str | None) -> str:
    own = error.get("ctx", {}).get("error")
    if isinstance(own, FedkeelError):
        return str(own)
    known = _fields(cls, error["loc"])
    arguments = _fields(cls, ())
    path = [arguments[p] if isinstance(p, int) and p < len(arguments) else str(p) for p in error["loc"]]
    name = ".".join(path)
    match error["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            thing = f"there is no key {name!r}" if call is None else f"{call} has no argument {name!r}"
            return f"{thing}; {did_you_mean(path[-1], known)}"
        case "unexpected_positional_argument":
            return f"{call} takes at most {len(known)} arguments: {', '.join(known) or 'none'}"
        case "missing_argument" | "missing":
            needed = f"{call} needs the argument {name!r}, as in {call}({name}=…)"
            return f"{name} is missing: give it" if call is None else needed
        case "model_type" | "dataclass_type" | "dict_type" if call is None:
            part = "KEY" if error["type"] == "dict_type" else known[0]
            return f"{name} = {error['input']!r}: it is a table: set its parts, as in {name}.{part}"
    reason = error["msg"].removeprefix("Value error, ")
    reason = f"{name} = {_short(error['input'])}: {reason[0].lower()}{reason[1:]}"
    return reason if call is None else f"{call}: {reason}"


def _fields(cls: Any, path: Sequence[int | str]) -> list[str]:
    """Return the names of the fields of a class, or of the class that the path leads into."""
    for part in path:
        inner = getattr(cls, "model_fields", {}).get(part)
        known = ("model_fields", "__dataclass_fields__")
        if inner is None or not any(hasattr(inner.annotation, name) for name in known):
            break
        cls = inner.annotation
    return list(getattr(cls, "model_fields", None) or getattr(cls, "__dataclass_fields__", {}))


def _short(value: Any) -> str:
    """Show a value in a line; of a long one its kind."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN and "\n" not in shown else f"a {type(value).__name__}"
