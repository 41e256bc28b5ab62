"""`fedkeel study stability` and `fedkeel study interaction`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.display import console, plain_table
from fedkeel.errors import ConfigError

if TYPE_CHECKING:
    from fedkeel.experiment import Experiment

_STABILITY = """[bold]Examples[/]

fedkeel study stability fedavg fedprox fedlnag fedsagd --rounds 60

fedkeel study stability fedavg fedinit --replace sample --pairs 10 --out runs/stability

Run the same line again to go on after an interruption: finished pairs below --out are kept."""
_INTERACTION = """[bold]Examples[/]

fedkeel study interaction fedavg feddyn --rounds 40 --every 10

fedkeel study interaction fedavg --split IID --json > features.json"""

Methods = Annotated[list[str], typer.Argument(metavar="METHOD...", help="Methods to study.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(no_args_is_help=True, help="Diagnostics that need runs of their own.")
    group.command(epilog=_STABILITY)(stability)
    group.command(epilog=_INTERACTION)(interaction)
    app.add_typer(group, name="study")


def stability(
    methods: Methods,
    pairs: Annotated[int, typer.Option(min=1, help="Replaced clients, each a pair of runs.")] = 5,
    replace: Annotated[str, typer.Option(help="What differs: one client, or one sample.")] = "client",
    held_out: Annotated[int, typer.Option(min=1, help="Clients held out to take their place.")] = 5,
    file: Annotated[Path | None, typer.Option(help="Experiment as TOML.")] = None,
    data: opt.Data = None,
    split: opt.Split = None,
    clients: opt.Clients = None,
    model: opt.Model = None,
    rounds: opt.Rounds = None,
    cohort: opt.Cohort = None,
    settings: opt.Settings = None,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """How far two runs part that differ in one client (FedSAGD) or one sample (FedInit)."""
    from fedkeel.studies.stability import stability as study  # noqa: PLC0415  heavy

    given = {
        "data": data,
        "split": split,
        "clients": clients,
        "model": model,
        "rounds": rounds,
        "cohort": cohort,
    }
    base = opt.experiment(file, [f"data.held_out={held_out}", *(settings or [])], given)
    place = out or paths.fresh("stability")
    screen = console(stderr=True)
    if replace not in {"client", "sample"}:
        raise ConfigError(f"--replace {replace}: choose one of client, sample")
    replaced: Literal["client", "sample"] = "sample" if replace == "sample" else "client"
    found = {}
    for name, one in _experiments(methods, base).items():
        federation = one.federation()
        result = study(
            one.task(federation),
            federation,
            one.algorithm(),
            rounds=one.rounds,
            cohort=one.cohort,
            work=one.work,
            seed=one.seed,
            replaced=replaced,
            pairs=pairs,
            keep=place,
            progress=_progress(name, screen.print),
        )
        found[name] = result.as_dict()
    _write(place, "stability", found, {name: list(enumerate(one["mean"])) for name, one in found.items()})
    if as_json:
        print(json.dumps({"directory": str(place), "methods": found}, ensure_ascii=False, indent=2))
        return
    rows = [
        (
            name,
            f"{one['mean'][-1]:.4f}",
            f"{one['largest'][-1]:.4f}",
            f"{one['local'][-1]:.4f}",
            f"{one['gap']:+.4f}",
        )
        for name, one in found.items()
    ]
    console().print(plain_table(("method", "‖x − x'‖ mean", "largest", "local", "R_u − R_e"), rows))
    console().print(
        f"\nAfter {base.rounds} rounds, one {replaced} replaced, {pairs} pairs; local: the largest distance "
        f"between two clients' models after the first walk.\nCurves: {place / 'stability.svg'}",
        markup=False,
        soft_wrap=True,
    )


def interaction(
    methods: Methods,
    every: Annotated[int, typer.Option(min=1, help="Rounds between looks.")] = 10,
    points: Annotated[int, typer.Option(min=2, help="Test points.")] = 500,
    components: Annotated[int, typer.Option(min=1, help="Principal components a model, K.")] = 20,
    gamma_corr: Annotated[float, typer.Option(help="Correlation above which features are one.")] = 0.5,
    centre: Annotated[bool, typer.Option(help="Centre the features first.")] = False,
    file: Annotated[Path | None, typer.Option(help="Experiment as TOML.")] = None,
    data: opt.Data = None,
    split: opt.Split = None,
    clients: opt.Clients = None,
    model: opt.Model = None,
    rounds: opt.Rounds = None,
    cohort: opt.Cohort = None,
    settings: opt.Settings = None,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """Which features local and global models share: the interaction tensor of Rethinking §3.3."""
    from fedkeel.studies.interaction import study  # noqa: PLC0415  heavy

    given = {
        "data": data,
        "split": split,
        "clients": clients,
        "model": model,
        "rounds": rounds,
        "cohort": cohort,
    }
    base = opt.experiment(file, settings, given)
    place = out or paths.fresh("interaction")
    screen = console(stderr=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, one in _experiments(methods, base).items():
        federation = one.federation()
        moments = study(
            one.task(federation),
            federation,
            one.algorithm(),
            rounds=one.rounds,
            cohort=one.cohort,
            work=one.work,
            seed=one.seed,
            every=every,
            points=points,
            components=components,
            gamma_corr=gamma_corr,
            centre=centre,
        )
        found[name] = []
        for moment in moments:
            found[name].append(moment._asdict())
            screen.print(
                f"{name}: round {moment.round} of {one.rounds}, {moment.features} features", style="dim"
            )
    curves = {name: [(m["round"], m["features"]) for m in seen] for name, seen in found.items()}
    _write(place, "interaction", found, curves)
    if as_json:
        print(json.dumps({"directory": str(place), "methods": found}, ensure_ascii=False, indent=2))
        return
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
    headings = (
        "method",
        "round",
        "features",
        "local ∩ global",
        "global ∩ mean",
        "global ∩ next",
        "by γ_corr",
    )
    console().print(plain_table(headings, rows))
    console().print(f"\nKept in {place}", markup=False, soft_wrap=True)


def _experiments(methods: list[str], base: Experiment) -> dict[str, Experiment]:
    from fedkeel.expression import spell_method  # noqa: PLC0415  heavy

    return {spell_method(text): base.with_settings([f"method={json.dumps(text)}"]) for text in methods}


def _progress(name: str, tell: Callable[[str], None]) -> Callable[[str, int, int], None]:
    return lambda what, done, total: tell(f"{name}: {what} {done + 1} of {total}")


def _write(place: Path, name: str, found: dict[str, Any], curves: dict[str, Any]) -> None:
    from fedkeel.report.lines import lines  # noqa: PLC0415  heavy
    from fedkeel.runs import storage, write_durably  # noqa: PLC0415

    titles = {"stability": "‖x − x'‖, mean over pairs", "interaction": "features, all models together"}
    with storage(place):
        place.mkdir(parents=True, exist_ok=True)
        write_durably(place / f"{name}.json", json.dumps(found, ensure_ascii=False, indent=2).encode())
        write_durably(place / f"{name}.svg", lines(titles[name], curves).encode())
