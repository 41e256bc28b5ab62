"""The commands of studies: each is made from the settings that its kind declares."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.directories.kinds import STUDIES, KeptStudy, study_class
from fedkeel.experiments import PAGE_FILE
from fedkeel.experiments.placement import Placement
from fedkeel.experiments.shown_runs import RunsDisplay
from fedkeel.report.terminal import print_document
from fedkeel.studies.base import AskedSetting, Study, asked_settings, play

_AGAIN = (
    "\n\nIt is kept in --out. After an interruption `fedkeel resume DIR` goes on; the same line with --out "
    "goes on with more methods, values or seeds: what is finished is not repeated."
)
Parallel = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Runs at a time; by default one per core, on a GPU one."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application; those of `fedkeel study` in a group."""
    group = typer.Typer(no_args_is_help=True, help="Diagnostics that need runs of their own.")
    for kind in STUDIES:
        if kind == "recipe":  # its command has more to it: see reproduce.py
            continue
        study = study_class(kind)
        name, _, inner = study.command.partition(" ")
        target = group if inner else app
        target.command(inner or name, epilog=_epilog(study))(command_of(study))
    app.add_typer(group, name="study")


def command_of(study: type[Study]) -> Callable[..., None]:
    """Return the command of a kind: its own settings, those of an experiment, and those of all studies."""
    own = asked_settings(study)

    def command(experiment: Any, **given: Any) -> None:
        parallel, on = given.pop("parallel", None), given.pop("on")
        out, as_json = given.pop("out"), given.pop("as_json")
        placement, experiment = Placement.of(at_once(parallel, experiment.device), on, experiment)
        asked = {name: value for name, value in given.items() if value is not None}
        made = study.of(experiment, **asked)
        directory = out or paths.fresh(study.command.rpartition(" ")[2])
        carry_out(made, directory, placement, as_json=as_json, line=line_given(directory))

    shared: dict[str, tuple[Any, Any]] = {} if study.own_workers else {"parallel": (Parallel, None)}
    shared |= {"on": (opt.On, None), "out": (opt.Out, None), "as_json": (opt.Json, False)}
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("experiment", keyword, annotation=Any),
        *(parameter_of(study, name, how) for name, how in own.items()),
        *(inspect.Parameter(name, keyword, default=d, annotation=a) for name, (a, d) in shared.items()),
    ]
    command.__name__, command.__doc__ = study.command.rpartition(" ")[2], study.about
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    dropped = [*study.without, *(name for name in own if name in opt.parameter_names())]
    return opt.takes_experiment(leave_out=dropped, show=opt.TRAINING if study.shows_training else ())(command)


def takes_settings(
    study: type[Study], *names: str, panel: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command settings of a study as options, by default all: it takes them as keywords.

    Those with a panel of their own come last in its help.
    """
    how = asked_settings(study)
    options = [parameter_of(study, name, how[name], panel) for name in names or how]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        declared = inspect.signature(command, eval_str=True).parameters.values()
        own = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in declared
            if one.kind is not one.VAR_KEYWORD
        ]
        needed = [one for one in own if one.default is one.empty]
        others = [one for one in own if one.default is not one.empty]
        rest = [*options, *others] if panel is None else [*others, *options]
        command.__signature__ = inspect.Signature([*needed, *rest])  # type: ignore[attr-defined]
        return command

    return decorate


def parameter_of(
    study: type[Study], name: str, how: AskedSetting, panel: str | None = None
) -> inspect.Parameter:
    """Return a setting of a study as what typer makes an option of."""
    field = study.model_fields[name]
    numbers = how.many and "int" in str(field.annotation)
    kind: Any = (list[int] if numbers else list[str]) if how.many else str if how.listed else field.annotation
    default: Any = field.get_default()
    if field.is_required():
        default = inspect.Parameter.empty
    elif how.many or how.listed:
        kind, default = kind | None, None
    if name == "over":
        kind = list[str]  # repeatable, so that what is meant for `tune` is told
    option = option_of(study, name, panel)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def option_of(study: type[Study], name: str, panel: str | None = None) -> Any:
    """Return how a setting of a study is written as an option, and what its help says."""
    field, how = study.model_fields[name], asked_settings(study)[name]
    least = next((limit.ge for limit in field.metadata if getattr(limit, "ge", None) is not None), None)
    if how.many:
        least = 0 if "int" in str(field.annotation) else None
    flag = how.flag or f"--{name.replace('_', '-')}"
    return typer.Option(flag, metavar=how.metavar, help=field.description, min=least, rich_help_panel=panel)


def at_once(parallel: int | None, device: str | None) -> int:
    """Return how many runs go side by side."""
    if parallel is not None:
        return parallel
    return cores() if device in (None, "cpu") else 1


def cores() -> int:
    """Return how many cores the machine has."""
    return os.cpu_count() or 1


def carry_out(
    study: Study, out: Path, placement: Placement, *, as_json: bool, line: str | None = None
) -> None:
    """Make a study with progress; print what it came to."""
    with RunsDisplay(out) as display:
        result = play(study, out, placement=placement, events=display, line=line)
    if as_json:
        print(json.dumps(result.numbers, ensure_ascii=False, indent=2))
    else:
        print_document(result.document, out / PAGE_FILE)
    study.refuse(result.results)


def go_on(kept: KeptStudy, *, rounds: int | None, columns: str | None, as_json: bool) -> None:
    """Go on with the study that a directory holds."""
    study = kept.study()
    if rounds is not None:
        study = study.with_rounds(rounds)
    if columns is not None:
        study = study.with_columns(columns).checked()
    before = kept.placement
    workers = at_once(None, study.experiment.device)
    placement = Placement(workers) if before is None else Placement(**before)
    carry_out(study, kept.directory, placement, as_json=as_json, line=kept.command)


def line_given(out: Path) -> str:
    """Return the line that was given, and where the work is kept."""
    words = sys.argv[1:]
    has_out = any(word == "--out" or word.startswith("--out=") for word in words)
    return shlex.join(["fedkeel", *words, *([] if has_out else ["--out", str(out)])])


def _epilog(study: type[Study]) -> str:
    examples = "\n\n".join(study.examples)
    return f"[bold]Examples[/]\n\n{examples}{_AGAIN}{opt.OTHER_SETTINGS}"
