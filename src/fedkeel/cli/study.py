"""`fedkeel study stability`, `fedkeel study interaction`, `fedkeel study constants`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.constants import EXAMPLES, constants
from fedkeel.cli.display import RunProgress, console, plain_table
from fedkeel.cli.resuming import resumable, say_what_is_there
from fedkeel.errors import Diverged
from fedkeel.experiments.experiment import Experiment

if TYPE_CHECKING:
    from fedkeel.options import Execution
    from fedkeel.running.round import Row

_AGAIN = """

Run the same line with --out again to go on after an interruption, or with more methods: what is finished
below it is not repeated."""
_STABILITY = f"""[bold]Examples[/]

fedkeel study stability fedavg fedprox fedlnag fedsagd --rounds 60

fedkeel study stability fedavg fedinit --replace sample --pairs 10 --out runs/stability{_AGAIN}"""
_INTERACTION = f"""[bold]Examples[/]

fedkeel study interaction fedavg feddyn --rounds 40 --every 10

fedkeel study interaction fedavg --split IID --out runs/features --json > features.json{_AGAIN}"""
_KEPT = "kept from before"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(no_args_is_help=True, help="Diagnostics that need runs of their own.")
    group.command(epilog=_STABILITY)(stability)
    group.command(epilog=_INTERACTION)(interaction)
    group.command(epilog=EXAMPLES)(constants)
    app.add_typer(group, name="study")


@opt.takes_experiment(leave_out=("method", "held_out"))
def stability(
    experiment: Experiment,
    methods: opt.Methods,
    pairs: Annotated[int, typer.Option(min=1, help="Replaced clients, each a pair of runs.")] = 5,
    replace: Annotated[
        Literal["client", "sample"], typer.Option(help="What differs: one client, or one sample.")
    ] = "client",
    held_out: Annotated[
        int | None, typer.Option(min=1, help="Clients held out to replace others; by default 5.")
    ] = None,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """How far two runs part that differ in one client (FedSAGD) or one sample (FedInit)."""
    from fedkeel.studies.stability import stability as study  # noqa: PLC0415  heavy

    base = experiment.with_settings([f"data.held_out={held_out or experiment.data.held_out or 5}"])
    directory = out or paths.fresh("stability")
    experiments = _experiments(methods, base)
    folders = _folders(directory, "stability study", experiments, base, {"replaced": replace})
    count = sum(folder.exists() and len(list(folder.glob("pair-*.json"))) for folder in folders.values())
    say_what_is_there(directory, count, pairs * len(experiments), "pairs")
    names = [f"{name}, {what}" for name in experiments for what in _runs(pairs)]
    found: dict[str, dict[str, Any]] = {}
    with resumable(directory), RunProgress(names, base.rounds, stderr=as_json) as progress:
        for number, (name, made) in enumerate(experiments.items()):
            with _named(name):
                result = study(
                    made.settings(),
                    _serial_unless_asked(made),
                    replaced=replace,
                    pairs=pairs,
                    directory=folders[name],
                    progress=_shown_runs(progress, number * (pairs + 1)),
                )
            found[name] = result.as_dict()
    curves = {name: list(enumerate(one["mean"])) for name, one in found.items()}
    _write(directory, "stability", "‖x − x'‖, mean over pairs", found, curves)
    if as_json:
        print(json.dumps({"directory": str(directory), "methods": found}, ensure_ascii=False, indent=2))
    else:
        _print_stability(found, f"After {base.rounds} rounds, one {replace} replaced", directory)


def _print_stability(found: dict[str, dict[str, Any]], title: str, directory: Path) -> None:
    rows = [
        (name, *(f"{one[key][-1]:.4f}" for key in ("mean", "largest", "local")), f"{one['gap']:+.4f}")
        for name, one in found.items()
    ]
    pairs = max(len(one["clients"]) for one in found.values())
    console().print(plain_table(("method", "‖x − x'‖ mean", "largest", "local", "R_u − R_e"), rows))
    console().print(
        f"\n{title}, {pairs} pairs; local: the largest distance between two clients' models after the first "
        f"walk.\nCurves: {directory / 'stability.svg'}",
        markup=False,
        soft_wrap=True,
    )


@opt.takes_experiment(leave_out=("method",))
def interaction(
    experiment: Experiment,
    methods: opt.Methods,
    every: Annotated[int, typer.Option(min=1, help="Rounds between measurements.")] = 10,
    points: Annotated[int, typer.Option(min=2, help="Test points.")] = 500,
    components: Annotated[int, typer.Option(min=1, help="Principal components per model, K.")] = 20,
    gamma_corr: Annotated[float, typer.Option(help="Correlation above which features are one.")] = 0.5,
    centre: Annotated[bool, typer.Option("--centre", help="Centre the features first.")] = False,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """Which features local and global models share: the interaction tensor of Rethinking §3.3."""
    from fedkeel.studies.interaction import looks_of, study  # noqa: PLC0415  heavy

    rounds = looks_of(experiment.rounds, every)
    asked: dict[str, Any] = {
        "every": every,
        "points": points,
        "components": components,
        "gamma_corr": gamma_corr,
        "centre": centre,
    }
    directory = out or paths.fresh("interaction")
    experiments = _experiments(methods, experiment)
    folders = _folders(directory, "interaction study", experiments, experiment, asked)
    count = sum(folder.exists() and len(list(folder.glob("round-*.json"))) for folder in folders.values())
    say_what_is_there(directory, count, len(rounds) * len(experiments), "measurements")
    found: dict[str, list[dict[str, Any]]] = {}
    with resumable(directory), RunProgress(list(experiments), experiment.rounds, stderr=as_json) as progress:
        for number, (name, made) in enumerate(experiments.items()):
            progress.begin(number, _rounds_in(folders[name] / "run"))
            rows: list[Row] = []
            with _named(name):
                measured = study(
                    made.settings(),
                    _serial_unless_asked(made),
                    **asked,
                    directory=folders[name],
                    progress=_both(rows.append, progress.row),
                )
                found[name] = [one._asdict() for one in measured]
            accuracy = rows[-1]["accuracy"] if rows else None
            progress.end(number, "done" if rows else _KEPT, accuracy, rounds=experiment.rounds)
    curves = {name: [(m["round"], m["features"]) for m in seen] for name, seen in found.items()}
    _write(directory, "interaction", "features, all models together", found, curves)
    if as_json:
        print(json.dumps({"directory": str(directory), "methods": found}, ensure_ascii=False, indent=2))
    else:
        _print_interaction(found, directory)


def _print_interaction(found: dict[str, list[dict[str, Any]]], directory: Path) -> None:
    rows = [
        (
            name,
            f"{m['round']}",
            f"{m['features']}",
            f"{m['local_current']:.1f}",
            f"{m['current_mean']}",
            f"{m['current_next']}",
            ", ".join(f"{gamma:g}: {count}" for gamma, count in m["sweep"]),
        )
        for name, seen in found.items()
        for m in seen
    ]
    shared = ("local ∩ global", "global ∩ mean", "global ∩ next")
    console().print(plain_table(("method", "round", "features", *shared, "features by γ_corr"), rows))
    console().print(f"\nCurves: {directory / 'interaction.svg'}", markup=False, soft_wrap=True)


def _experiments(methods: list[str], base: Experiment) -> dict[str, Experiment]:
    from fedkeel.experiments.comparison import Comparison  # noqa: PLC0415  heavy

    named = Comparison.of(methods, 1, base).methods
    return {name: base.with_settings([f"method={json.dumps(name)}"]) for name in named}


def _folders(
    directory: Path, kind: str, experiments: dict[str, Experiment], base: Experiment, asked: dict[str, Any]
) -> dict[str, Path]:
    """Take the directory for these settings, and return that of each method below it."""
    from fedkeel.experiments.comparison import folder  # noqa: PLC0415  heavy
    from fedkeel.studies.artifacts import claim  # noqa: PLC0415

    shared = {key: part for key, part in base.table().items() if key != "method"}
    claim(directory, kind, {**shared, **asked})
    return {name: directory / folder(name) for name in experiments}


def _serial_unless_asked(one: Experiment) -> Execution:
    """Return how a study executes its runs: serially, so that its numbers do not depend on a measurement."""
    from fedkeel.options import Execution  # noqa: PLC0415

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


def _write(directory: Path, name: str, title: str, found: dict[str, Any], curves: dict[str, Any]) -> None:
    from fedkeel.files import storage_errors, write_durably  # noqa: PLC0415
    from fedkeel.report.charts import line_chart  # noqa: PLC0415  heavy

    with storage_errors(directory):
        write_durably(directory / f"{name}.json", json.dumps(found, ensure_ascii=False, indent=2).encode())
        write_durably(directory / f"{name}.svg", line_chart(title, curves).file().encode())
