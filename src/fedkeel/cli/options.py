"""The options that commands share: those of an experiment, made from its fields, and a few others.

A field of `Experiment` is declared once, with its type and its description. It is then a key of experiment
files and of `--set`, a line of `fedkeel settings`, and an option of every command that is decorated with
`takes_experiment`. The help of a command shows the options that most people need.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from copy import copy
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer

from fedkeel.common.errors import ConfigError, FedkeelError
from fedkeel.experiments.expression import parse_method, parse_split

if TYPE_CHECKING:
    from fedkeel.experiments.experiment import Experiment
    from fedkeel.experiments.setting_table import Setting

_DATA, _WORK, _RUN, _EXECUTION = "Data and model", "Local work", "The run", "Execution"
PILOT = "The pilot"
_FAULTS = "When clients fail"

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="Experiment as TOML, or the directory of a run; without it, the default one on digits.",
    ),
]
Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of a run, of a comparison or, to show, of a sweep.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as work.lr=0.1; repeatable."),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where to keep it; by default a new directory below runs/."),
]
_VALUES = typer.Option(metavar="A,B,…", help="Its values, separated by commas (or ; where they hold commas).")
ValuesOrUsual = Annotated[str | None, _VALUES]
On = Annotated[
    Literal["ray"] | None,
    typer.Option(
        "--on",
        help="Spread the runs over a Ray cluster, at --address or started here; --out must be on a file "
        "system that its nodes share.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]

PilotOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Keep what is measured, to go on after an interruption; else nothing is kept.",
        rich_help_panel=PILOT,
    ),
]

# options whose name is not the last part of their key, and values that may be written in more than one way
_NAMES = {
    "data.name": "data",
    "data.seed": "data-seed",
    "model.name": "model",
    "model.seed": "model-seed",
    "probes": "probe",
}
_FORMS = {
    "cohort": "N|FRACTION",
    "min_clients": "N|FRACTION",
    "data.clients": "N|all",
    "work.batch_size": "N|all",
}
_PANELS = {
    "data": _DATA,
    "model": _DATA,
    "work": _WORK,
    "run": _RUN,
    "failures": _FAULTS,
    "execution": _EXECUTION,
}
_ORDER = (None, _DATA, _WORK, _RUN, _FAULTS, _EXECUTION)
# the parameters that the help of every command shows, and those that it also shows of commands that train
_SHOWN = (
    *("method", "data", "model", "split", "clients", "epochs", "steps", "batch_size", "lr", "lr_decay"),
    *("rounds", "cohort", "seed", "target", "engine", "threads"),
)
TRAINING = ("probe", "eval_every", "address", "device")
# the last line of their help
OTHER_SETTINGS = "\n\n[bold]All other settings:[/] --set KEY=VALUE, listed by `fedkeel settings`"


class ExperimentOption(NamedTuple):
    """A key of experiment files as an option; `as_text`: its value is read as `--set` reads it."""

    key: str
    name: str
    annotation: Any
    as_text: bool

    @property
    def parameter(self) -> str:
        """The name of the parameter that typer passes."""
        return self.name.replace("-", "_")

    def setting(self, value: Any) -> str:
        """Return the value as a setting, as `--set` takes it."""
        plain = self.as_text or isinstance(value, float)  # JSON and TOML do not agree on nan
        return f"{self.key}={value if plain else json.dumps(value, ensure_ascii=False)}"


def takes_experiment(
    *, leave_out: Collection[str] = (), part: str | None = None, show: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of an experiment, and call it with the `experiment` they make.

    The experiment's file is the command's argument. `leave_out` names the options that the command does
    without, or that it declares itself; with `part`, it has only those of that table, and the seed. The help
    shows the usual options and those that `show` names, with `part` all of them; the others work too.
    """
    shown = {*_SHOWN, *show}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = [
            option
            for option in experiment_options()
            if option.parameter not in leave_out
            and (part is None or option.key.startswith((f"{part}.", "seed")))
        ]
        shared = {
            "file": File,
            **{
                option.parameter: option.annotation
                if part is not None or option.parameter in shown
                else _hidden(option.annotation)
                for option in options
            },
            "settings": Settings,
        }
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["experiment"]
        assert not own.keys() & shared.keys(), f"{command.__name__}: an option is declared twice"

        def call(**given: Any) -> None:
            values = [(option, given.pop(option.parameter)) for option in options]
            experiment = read_experiment(given.pop("file"), given.pop("settings"), values)
            command(experiment=experiment, **given)

        keyword = inspect.Parameter.KEYWORD_ONLY
        call.__name__, call.__doc__ = command.__name__, command.__doc__
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what typer makes options of
            [parameter.replace(kind=keyword) for parameter in own.values()]
            + [inspect.Parameter(name, keyword, default=None, annotation=a) for name, a in shared.items()]
        )
        return call

    return decorate


def read_experiment(
    file: Path | None, settings: list[str] | None, values: Iterable[tuple[ExperimentOption, Any]]
) -> Experiment:
    """Return the experiment of a file (or the default one) with options and then `--set` applied."""
    from fedkeel.experiments.experiment import Experiment  # noqa: PLC0415  pydantic takes its time

    if file is not None and not file.exists():
        raise ConfigError(f"{file}: there is no such file: {_what_instead(str(file))}")
    if file is not None and file.is_dir() and not (file / "experiment.toml").exists():
        raise ConfigError(
            f"{file}: this directory holds no experiment.toml: give the TOML file of an experiment, or the "
            "directory of a run"
        )
    base = Experiment() if file is None else Experiment.load(file)
    given = [option.setting(value) for option, value in values if value is not None]
    return base.with_settings([*given, *(settings or [])])


def parameter_names() -> set[str]:
    """Return the names of the options that experiments have."""
    return {option.parameter for option in experiment_options()}


def split_values(text: str) -> list[str]:
    """Return the values of `--values`."""
    return [value.strip() for value in text.split(";" if ";" in text else ",")]


def _what_instead(text: str) -> str:
    """Return how to give what stands where the file belongs: a method, a split, a setting."""
    for option, parse in (("--method", parse_method), ("--split", parse_split)):
        with suppress(FedkeelError):
            parse(text)
            return f"write {option} {shlex.quote(text)}"
    if "=" in text:
        return f"write --set {shlex.quote(text)} for a setting, or --over where it varies"
    return "give the TOML file of an experiment"


@cache
def experiment_options() -> tuple[ExperimentOption, ...]:
    """Return every key of an experiment as an option, in the order of the help's panels.

    Keys that hold tables (`data.options`) are for files and `--set` alone.
    """
    from fedkeel.experiments.setting_table import all_settings  # noqa: PLC0415  pydantic takes its time

    options = [
        (_panel(one), _option(one)) for one in all_settings() if get_origin(one.annotation) is not dict
    ]
    return tuple(option for _, option in sorted(options, key=lambda pair: _ORDER.index(pair[0])))


def _panel(setting: Setting) -> str | None:
    return None if setting.key == "method" else _PANELS[setting.part]


def _option(setting: Setting) -> ExperimentOption:
    key = setting.key
    name = _NAMES.get(key, key.rpartition(".")[2].replace("_", "-"))
    kind = None if key in _FORMS else _plain_type(setting.annotation)
    info = typer.Option(
        f"--{name}", help=setting.meaning, metavar=_FORMS.get(key), rich_help_panel=_panel(setting)
    )
    return ExperimentOption(key, name, Annotated[(kind or str) | None, info], as_text=kind is None)


def _hidden(annotation: Any) -> Any:
    """Return the annotation of an option that works, but that the help does not show."""
    kind, info = get_args(annotation)
    info = copy(info)
    info.hidden = True
    return Annotated[kind, info]


def _plain_type(annotation: Any) -> Any:
    """Return the type that typer is to read, None where only the experiment itself can read the value."""
    if annotation in (bool, int, float, str):
        return annotation
    origin = get_origin(annotation)
    parts = [part for part in get_args(annotation) if part is not NoneType]
    if origin is Literal:
        return annotation
    if origin is list:
        return list[str]
    if origin is Annotated or (origin in (Union, UnionType) and len(parts) == 1):
        return _plain_type(parts[0])
    return None
