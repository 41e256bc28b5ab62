"""The options that commands share: those of an experiment, made from its fields, and a few others.

A field of `Experiment` is declared once, with its type and its description. It is then a key of experiment
files and of `--set`, and an option of every command that is decorated with `takes_experiment`.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer

from fedkeel.cli.resuming import given_command
from fedkeel.errors import ConfigError, FedkeelError

if TYPE_CHECKING:
    from fedkeel.experiments.experiment import Experiment

_DATA, _WORK, _RUN, _EXECUTION, _PILOT = "Data and model", "Local work", "The run", "Execution", "The pilot"
_FAULTS = "When clients fail"

_METHODS = typer.Option(
    "--method", metavar="METHOD", help='Method, as scaffold or "relaxed(fedcm, beta=0.1)"; repeatable.'
)
Methods = Annotated[list[str], _METHODS]
MethodsOrAll = Annotated[list[str] | None, _METHODS]
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
Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="Number of seeds: 0, 1, 2, …")]
_VALUES = typer.Option(metavar="A,B,…", help="Its values, separated by commas (or ; where they hold commas).")
Values = Annotated[str, _VALUES]
ValuesOrUsual = Annotated[str | None, _VALUES]
MeasureRule = Annotated[
    str,
    typer.Option(
        "--measure",
        metavar="RULE",
        help="What counts: final, last:K (mean of the last K rounds), top, smoothed:K (FedInit's), mean:A:B "
        '(of a part of the run, as 0.5:1); of another column as "final of loss (min)".',
    ),
]
TableColumns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B,…",
        help="Columns of the table: accuracy (by the measure), any measure, seconds, and rounds_to_target, "
        "bytes_, gradients_ or seconds_to_target.",
    ),
]
Samples = Annotated[int, typer.Option(min=2, help="Samples on which models are compared.")]
On = Annotated[
    Literal["ray"] | None,
    typer.Option(
        "--on",
        help="Spread the runs over a Ray cluster, at --address or started here; --out must be on a file "
        "system that its nodes share.",
    ),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Runs at a time; by default one per core (`compare`: one after another).",
    ),
]
Scale = Annotated[
    Literal["paper", "cpu", "smoke"],
    typer.Option(help="paper: as printed; cpu: an hour or two on two cores; smoke: seconds."),
]
Reading = Annotated[
    Literal["printed", "authors"],
    typer.Option(
        help="printed: the paper's text alone; authors: as public code of its authors, or of its baselines', "
        "runs it."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]

PilotRounds = Annotated[int, typer.Option(min=1, help="Rounds of the pilot.", rich_help_panel=_PILOT)]
PilotPoints = Annotated[
    int, typer.Option(min=2, help="Models of it that are measured.", rich_help_panel=_PILOT)
]
PilotClients = Annotated[
    int, typer.Option(min=1, help="Clients that are measured, at most.", rich_help_panel=_PILOT)
]
PilotSamples = Annotated[int, typer.Option(min=1, help="Samples of each, at most.", rich_help_panel=_PILOT)]
PilotOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Keep what is measured, to go on after an interruption; else nothing is kept.",
        rich_help_panel=_PILOT,
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
_PANELS = {"method": None, "data": _DATA, "model": _DATA, "work": _WORK, "faults": _FAULTS}
_ORDER = (None, _DATA, _WORK, _RUN, _FAULTS, _EXECUTION)
_WORK_HELP = {
    "epochs": "Local epochs per round.",
    "steps": "Local steps per round, instead of epochs.",
    "batch_size": "Minibatch size, or all of a client's data.",
    "lr": "Local learning rate.",
    "lr_decay": "Factor on the local learning rate after every round.",
    "weight_decay": "L2 term of every local step.",
    "clip": "Largest norm of what clip-on names.",
    "clip_on": "What is clipped: the minibatch gradient; the direction but for its terms in y (a large pull "
    "then drags the model to zero); or corrected: the direction with them, but for weight decay.",
    "last_batch": "What becomes of samples left over at the end of an epoch: keep, drop or merge.",
    "optimizer": 'Kind of local steps, as "AdamW(weight_decay=0.1)"; plain ones by default.',
    "momentum": "Local momentum, with an empty buffer in every round.",
    "nesterov": "Take that momentum as Nesterov's.",
    "schedule": 'Learning-rate schedule, as "Drop(at=50)", "DecayPerEpoch(0.9, 5)" or InverseRoot.',
}


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
    *, leave_out: Collection[str] = (), part: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of an experiment, and call it with the `experiment` they make.

    The experiment's file is the command's argument. `leave_out` names the options that the command does
    without, or that it declares itself; with `part`, it has only those of that table, and the seed.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = [
            option
            for option in experiment_options()
            if option.parameter not in leave_out
            and (part is None or option.key.startswith((f"{part}.", "seed")))
        ]
        shared = {
            "file": File,
            **{option.parameter: option.annotation for option in options},
            "settings": Settings,
        }
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["experiment"]
        assert not own.keys() & shared.keys(), f"{command.__name__}: an option is declared twice"

        def call(**given: Any) -> None:
            values = [(option, given.pop(option.parameter)) for option in options]
            experiment = read_experiment(given.pop("file"), given.pop("settings"), values)
            with given_command(command, experiment, given):
                command(experiment=experiment, **given)

        keyword = inspect.Parameter.KEYWORD_ONLY
        call.__name__, call.__doc__ = command.__name__, command.__doc__
        call.command = command  # type: ignore[attr-defined]  # for `fedkeel resume`
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


def split_values(text: str) -> list[str]:
    """Return the values of `--values`."""
    return [value.strip() for value in text.split(";" if ";" in text else ",")]


def _what_instead(text: str) -> str:
    """Return how to give what stands where the file belongs: a method, a split, a setting."""
    from fedkeel.experiments.expression import parse_method, parse_split  # noqa: PLC0415  heavy

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
    fields = sorted(_fields(), key=lambda one: _ORDER.index(one[2]))
    return tuple(_option(*one) for one in fields if get_origin(one[1].annotation) is not dict)


def _fields() -> Iterator[tuple[str, Any, str | None]]:
    """Yield the key, the pydantic field and the help's panel of every value in an experiment."""
    from fedkeel.experiments.experiment import Experiment  # noqa: PLC0415
    from fedkeel.options import Execution, FaultOptions  # noqa: PLC0415

    panels = dict.fromkeys(Execution.model_fields, _EXECUTION) | dict.fromkeys(
        FaultOptions.model_fields, _FAULTS
    )
    for name, field in Experiment.model_fields.items():
        panel = _PANELS.get(name, panels.get(name, _RUN))
        parts = getattr(field.annotation, "__pydantic_fields__", None)
        if parts is None:
            yield name, field, panel
        else:
            yield from ((f"{name}.{part}", inner, panel) for part, inner in parts.items())


def _option(key: str, field: Any, panel: str | None) -> ExperimentOption:
    last = key.rpartition(".")[2]
    name = _NAMES.get(key, last.replace("_", "-"))
    kind = None if key in _FORMS else _plain_type(field.annotation)
    info = typer.Option(
        f"--{name}",
        help=field.description or _WORK_HELP.get(last),
        metavar=_FORMS.get(key),
        rich_help_panel=panel,
    )
    return ExperimentOption(key, name, Annotated[(kind or str) | None, info], as_text=kind is None)


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
