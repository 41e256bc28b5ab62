"""`fedkeel study`: stability, interaction, constants, robustness."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.constants import EXAMPLES, constants
from fedkeel.cli.resuming import command_line, keep_command, missing_directories, resumable, say_what_is_there
from fedkeel.cli.robustness import EXAMPLES as ROBUSTNESS
from fedkeel.cli.robustness import robustness
from fedkeel.cli.study_page import print_interaction, print_stability
from fedkeel.common.errors import Diverged
from fedkeel.common.progress import RunProgress
from fedkeel.experiments.experiment import Experiment

if TYPE_CHECKING:
    from fedkeel.running.round import Row
    from fedkeel.settings.options import Execution

_AGAIN = """

Run the same line with --out again to go on after an interruption, or with more methods: what is finished
below it is not repeated."""
_STABILITY = f"""[bold]Examples[/]

fedkeel study stability --method fedavg --method fedprox --method fedsagd --rounds 60

fedkeel study stability --method fedavg --method fedinit --replace sample --out runs/stability{_AGAIN}"""
_INTERACTION = f"""[bold]Examples[/]

fedkeel study interaction --method fedavg --method feddyn --rounds 40 --every 10

fedkeel study interaction --method fedavg --split IID --out runs/features --json > features.json{_AGAIN}"""
_KEPT = "kept from before"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(no_args_is_help=True, help="Diagnostics that need runs of their own.")
    group.command(epilog=_STABILITY + opt.OTHER_SETTINGS)(stability)
    group.command(epilog=_INTERACTION + opt.OTHER_SETTINGS)(interaction)
    group.command(epilog=EXAMPLES + opt.OTHER_SETTINGS)(constants)
    group.command(epilog=ROBUSTNESS + opt.OTHER_SETTINGS)(robustness)
    app.add_typer(group, name="study")


@opt.takes_experiment(leave_out=("method", "held_out", "track"))
def stability(
    experiment: Experiment,
    method: opt.Methods,
    pairs: Annotated[int, typer.Option(min=1, help="Replaced clients, each a pair of runs.")] = 5,
    replace: Annotated[
        Literal["client", "sample"], typer.Option(help="What differs: one client, or one sample.")
    ] = "client",
    held_out: Annotated[
        int | None, typer.Option(min=1, help="Clients held out of training, to replace others; by default 5.")
    ] = None,
    drawn_by: Annotated[
        int | None, typer.Option(min=1, help="Replace clients that are drawn within so many rounds.")
    ] = None,
    drawn_at_least: Annotated[
        int | None, typer.Option(min=1, help="Replace clients that are drawn at least so often.")
    ] = None,
    local_round: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Round in which walks are compared; repeatable. Default: 0, 10, 50, …"),
    ] = None,
    samples: opt.Samples = 1000,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """How far two runs part that differ in one client (FedSAGD) or one sample (FedInit)."""
    from fedkeel.studies.stability import stability as study  # noqa: PLC0415  heavy

    base = experiment.with_settings([f"data.held_out={held_out or experiment.data.held_out or 5}"])
    directory = out or paths.fresh("stability")
    experiments = _experiments(method, base)
    asked = {
        "replaced": replace,
        "drawn_by": drawn_by,
        "drawn_at_least": drawn_at_least,
        "points": samples,
        "local_rounds": local_round,
    }
    new = missing_directories(directory)
    folders = _folders(directory, "stability study", experiments, base, asked)
    count = sum(folder.exists() and len(list(folder.glob("pair-*.json"))) for folder in folders.values())
    say_what_is_there(directory, count, pairs * len(experiments), "pairs")
    names = [f"{name}, {what}" for name in experiments for what in _runs(pairs)]
    found: dict[str, dict[str, Any]] = {}
    with resumable(directory, new), RunProgress(names, base.rounds, stderr=as_json) as progress:
        keep_command(directory)
        for number, (name, made) in enumerate(experiments.items()):
            with _named(name):
                result = study(
                    made.settings(),
                    _serial_unless_asked(made),
                    replaced=replace,
                    pairs=pairs,
                    drawn_by=drawn_by,
                    drawn_at_least=drawn_at_least,
                    local_rounds=local_round or None,
                    points=samples,
                    directory=folders[name],
                    progress=_shown_runs(progress, number * (pairs + 1)),
                )
            found[name] = result.as_dict()
    page = _write(directory, "stability", found)
    if as_json:
        told = {"directory": str(directory), "page": str(page), "methods": found}
        print(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        print_stability(found, page)


@opt.takes_experiment(leave_out=("method", "track"))
def interaction(
    experiment: Experiment,
    method: opt.Methods,
    every: Annotated[int, typer.Option(min=1, help="Rounds between snapshots.")] = 10,
    samples: opt.Samples = 500,
    components: Annotated[int, typer.Option(min=1, help="Principal components per model, K.")] = 20,
    gamma_corr: Annotated[float, typer.Option(help="Correlation above which features are one.")] = 0.5,
    centre: Annotated[bool, typer.Option("--centre", help="Centre the features first.")] = False,
    entries: Annotated[
        Literal["absolute", "signed"],
        typer.Option(help="Which points contain a feature: by |v|, or by v with its sign."),
    ] = "absolute",
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """Which features local and global models share: the interaction tensor of Rethinking §3.3."""
    from fedkeel.studies.interaction import FeatureSettings, study  # noqa: PLC0415  heavy

    features = FeatureSettings(every, samples, components, gamma_corr, centre, entries=entries)
    rounds = features.rounds(experiment.rounds)
    directory = out or paths.fresh("interaction")
    experiments = _experiments(method, experiment)
    new = missing_directories(directory)
    folders = _folders(directory, "interaction study", experiments, experiment, asdict(features))
    count = sum(folder.exists() and len(list(folder.glob("round-*.json"))) for folder in folders.values())
    say_what_is_there(directory, count, len(rounds) * len(experiments), "snapshots")
    found: dict[str, list[dict[str, Any]]] = {}
    shown = RunProgress(list(experiments), experiment.rounds, stderr=as_json)
    with resumable(directory, new), shown as progress:
        keep_command(directory)
        for number, (name, made) in enumerate(experiments.items()):
            progress.begin(number, _rounds_in(folders[name] / "run"))
            rows: list[Row] = []
            with _named(name):
                measured = study(
                    made.settings(),
                    _serial_unless_asked(made),
                    features=features,
                    directory=folders[name],
                    progress=_both(rows.append, progress.row),
                )
                found[name] = [one._asdict() for one in measured]
            accuracy = rows[-1]["accuracy"] if rows else None
            progress.end(number, "done" if rows else _KEPT, accuracy, rounds=experiment.rounds)
    page = _write(directory, "interaction", found)
    if as_json:
        told = {"directory": str(directory), "page": str(page), "methods": found}
        print(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        print_interaction(found, page)


def _experiments(methods: list[str], base: Experiment) -> dict[str, Experiment]:
    from fedkeel.studies.comparison import Comparison  # noqa: PLC0415  heavy

    named = Comparison.of(methods, 1, base).methods
    return {name: base.with_settings([f"method={json.dumps(name)}"]) for name in named}


def _folders(
    directory: Path, kind: str, experiments: dict[str, Experiment], base: Experiment, asked: dict[str, Any]
) -> dict[str, Path]:
    """Take the directory for these settings, and return that of each method below it."""
    from fedkeel.studies.artifacts import open_directory  # noqa: PLC0415
    from fedkeel.studies.comparison import folder  # noqa: PLC0415  heavy

    shared = {key: part for key, part in base.table().items() if key != "method"}
    open_directory(directory, kind, {**shared, **asked})
    return {name: directory / folder(name) for name in experiments}


def _serial_unless_asked(one: Experiment) -> Execution:
    """Return how a study executes its runs: serially, so that its numbers do not depend on a measurement."""
    from fedkeel.settings.options import Execution  # noqa: PLC0415

    execution = one.execution()
    return Execution(**{**execution.model_dump(), "engine": "serial"}) if one.engine == "auto" else execution


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say whose run diverged."""
    try:
        yield
    except Diverged as problem:
        raise Diverged(f"{name}: {problem}", round=problem.round, client=problem.client) from None


def _runs(pairs: int) -> list[str]:
    return ["unchanged", *(f"pair {number + 1}" for number in range(pairs))]


def _shown_runs(progress: RunProgress, first: int) -> Callable[[int, Row | None], None]:
    """Return what shows the rounds of a method's runs; its first run has the index `first`."""

    def show(run: int, row: Row | None) -> None:
        index = first + run
        if row is None:
            progress.begin(index, progress.rounds)
            progress.end(index, _KEPT, None)
            return
        if row["round"] == 0:
            progress.begin(index)
        progress.row(row)
        if row["round"] + 1 == progress.rounds:
            progress.end(index, "done", row["accuracy"])

    return show


def _both(one: Callable[[Row], None], other: Callable[[Row], None]) -> Callable[[Row], None]:
    def call(row: Row) -> None:
        one(row)
        other(row)

    return call


def _rounds_in(run: Path) -> int:
    from fedkeel.running.run_directory import read_rows  # noqa: PLC0415  heavy

    return len(read_rows(run))


def _write(directory: Path, name: str, found: dict[str, Any]) -> Path:
    from fedkeel.studies.study_pages import write_study  # noqa: PLC0415  heavy

    return write_study(
        directory, name, found, f"{name.capitalize()} of {', '.join(found)}", command_line(directory)
    )
