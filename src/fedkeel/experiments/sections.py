"""The tables of an experiment that say which data and which model, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Count, FrozenModel, Seed
from fedkeel.experiments.expression import (
    parse_augment,
    parse_init,
    parse_model,
    parse_noise,
    parse_split,
)

ALL, NONE = "all", "none"


def _read_all(given: Any) -> Any:
    """Read the number of clients: a count, or all natural groups."""
    if isinstance(given, str) and given != ALL:
        raise ConfigError(f"data.clients = {given!r}: give a count, or {ALL}")
    return None if given == ALL else given


OrAll = BeforeValidator(_read_all)


class _Section(BaseModel):
    """A table inside an experiment; the experiment reports its mistakes, under the table's name."""

    model_config = FrozenModel.model_config


def _read_noise(given: object) -> list[str] | None:
    """Check the expressions of noise; one alone may stand without a list."""
    texts: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    if not texts or (len(texts) == 1 and is_none(texts[0])):
        return None
    for text in texts:
        check_text("data.noise", parse_noise, text)
    return texts


def _read_augment(given: object) -> Any:
    if is_none(given):
        return None
    check_text("data.augment", parse_augment, given)
    return given


def is_init_expression(text: str) -> bool:
    """Tell whether a text asks for initial weights by an expression; else it names a file or a directory."""
    return re.fullmatch(r"[A-Za-z_][\w-]*\(.*\)|pre-?train", text.strip(), re.DOTALL | re.I) is not None


def _read_init(given: object) -> Any:
    """Check what initial weights are asked for; an expression is kept with all its arguments spelled out."""
    if is_none(given):
        return None
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(
            f"model.init = {given!r}: give a file of weights, the directory of a finished run, or "
            'Pretrain("cifar10", epochs=5)'
        )
    return repr(check_text("model.init", parse_init, given)) if is_init_expression(given) else given


def is_none(given: object) -> bool:
    """Tell whether a setting asks for nothing."""
    return given is None or (isinstance(given, str) and given.strip().lower() == NONE)


def check_text(key: str, parse: Callable[[Any], Any], text: object) -> Any:
    """Read an expression; a mistake in it is told with its key and the text as given."""
    try:
        return parse(text)
    except ConfigError as problem:
        raise ConfigError(f"{key} = {text!r}: {problem}") from None


class DataSettings(_Section):
    """Which data, how it is split over how many clients, and what changes its pictures.

    Its seed is the run's where none is given; noise is drawn with the seed of the split, or with its own.
    """

    name: str = Field("digits", description="Data set, as digits or cifar10.")
    split: str = Field(
        "DirichletByClass(0.1)",
        description="How clients differ: DirichletByClass(0.1), IID, Pathological(2).",
    )
    clients: Annotated[Count | None, OrAll] = Field(
        50, description="Number of clients; all natural groups with all."
    )
    seed: Seed | None = Field(None, description="Seed of the split, instead of the run's.")
    held_out: Annotated[int, Field(ge=0)] = Field(0, description="Clients held out of training.")
    validation: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Share of each client's samples held out for validation, as 0.1."
    )
    client_tests: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Share of each client's samples that is its own test set, as 0.2."
    )
    noise: Annotated[list[str] | None, BeforeValidator(_read_noise)] = Field(
        None, description='Noise on pictures, as "ChannelGains(0.2)" or ClassBrightness; repeatable.'
    )
    noise_seed: Seed | None = Field(None, description="Seed of the noise, instead of the split's.")
    augment: Annotated[str | None, BeforeValidator(_read_augment)] = Field(
        None, description='Pictures varied in training, as Augment or "Augment(flip=True, pad=4)".'
    )
    options: dict[str, Any] = Field(default_factory=dict, description="What the data set's loader is given.")

    @field_validator("split")
    @classmethod
    def _reads(cls, split: str) -> str:
        parse_split(split)
        return split


class ModelSettings(_Section):
    """Which model, with its arguments; its initial weights come from the run's seed where none is given.

    `init` is a file of weights, the directory of a finished run, or an expression for pre-training.
    """

    name: str = Field("mlp", description='Model, as cnn or "mlp(200, 200)".')
    dtype: Literal["float32", "float64"] = Field("float32", description="Precision of all arithmetic.")
    seed: Seed | None = Field(None, description="Seed of the initial weights, instead of the run's.")
    init: Annotated[str | None, BeforeValidator(_read_init)] = Field(
        None,
        description="Initial weights: a file, a finished run, or \"Pretrain('cifar10', epochs=5)\".",
    )

    @field_validator("name")
    @classmethod
    def _reads(cls, name: str) -> str:
        check_text("model.name", parse_model, name)
        return name
