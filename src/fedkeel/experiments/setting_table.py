"""All settings of an experiment, read off their declarations: key, type, default and meaning.

The command line makes its options of them; `fedkeel settings` and docs/settings.md list them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.common.frozen import allowed
from fedkeel.experiments.experiment import NONE_IS_ALL, Experiment
from fedkeel.experiments.sections import ALL, NONE
from fedkeel.settings.options import Execution, FaultOptions

# part of the table: which settings it has
PARTS = {
    "run": "The run",
    "data": "Data",
    "model": "Model",
    "work": "Local work",
    "failures": "When clients fail or the model diverges",
    "execution": "Execution",
}
_WORDS = {int: "integer", float: "number", bool: "true or false", str: "text"}


class Setting(NamedTuple):
    """A key of an experiment: what it may be, what it is by default (as `--set` takes it), what it means."""

    key: str
    part: str
    annotation: Any
    type: str
    default: str
    meaning: str

    def is_named(self, name: str) -> bool:
        """Tell whether a name is the setting's key, its last word, or its part."""
        return name in (self.part, self.key, self.key.rpartition(".")[2])


@cache
def all_settings() -> tuple[Setting, ...]:
    """Return all settings, part by part, the method first."""
    parts = list(PARTS)
    return tuple(sorted(_settings(), key=lambda one: (parts.index(one.part), one.key != "method")))


def find_settings(name: str) -> list[Setting]:
    """Return the settings of a part, or of a key's name."""
    found = [setting for setting in all_settings() if setting.is_named(name.replace("-", "_"))]
    if not found:
        known = [*PARTS, *(setting.key for setting in all_settings())]
        raise ConfigError(f"settings: there is no part or key {name!r}; {did_you_mean(name, known)}")
    return found


def _settings() -> Iterator[Setting]:
    default = Experiment()
    for name, field in Experiment.model_fields.items():
        value, parts = getattr(default, name), getattr(field.annotation, "__pydantic_fields__", None)
        if parts is None:
            yield _setting(name, _part(name), field, value)
        else:
            yield from (
                _setting(f"{name}.{key}", name, inner, getattr(value, key)) for key, inner in parts.items()
            )


def _part(name: str) -> str:
    if name in FaultOptions.model_fields or name == "faults":
        return "failures"
    return "execution" if name in Execution.model_fields else "run"


def _setting(key: str, part: str, field: Any, default: Any) -> Setting:
    kind = _type_text(key, field.annotation, field.metadata)
    return Setting(key, part, field.annotation, kind, _as_text(key, default), field.description or "")


def _type_text(key: str, annotation: Any, limits: list[Any]) -> str:
    """Say what a setting may be; that it may also be absent is told by its default."""
    origin = get_origin(annotation)
    if annotation == int | float:
        return "count or fraction"
    if origin in (Union, UnionType):
        (kind,) = (kind for kind in get_args(annotation) if kind is not NoneType)
        text = _type_text(key, kind, limits)
        return f"{text}, or {ALL}" if key in NONE_IS_ALL else text
    if origin is list:
        return "list of text"
    if origin in (Annotated, Literal) or annotation in _WORDS:
        return allowed(annotation, limits, _WORDS, str)
    return "table" if origin is dict else "text"  # the text of an expression


def _as_text(key: str, value: Any) -> str:
    if value is None or value == {}:
        return ALL if key in NONE_IS_ALL else NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
