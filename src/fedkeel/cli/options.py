"""The options that commands share, and how they change an experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedkeel.experiments.experiment import Experiment

_DATA, _WORK, _RUN, _PILOT = "Data and model", "Local work", "The run", "The pilot"

Methods = Annotated[
    list[str], typer.Argument(metavar="METHOD", help='Methods, as scaffold or "fedprox(mu=0.1)".')
]
File = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Experiment as TOML; without it, the default one on digits."),
]
FileArgument = Annotated[
    Path | None, typer.Argument(help="Experiment as TOML; without it, the default one on digits.")
]

Data = Annotated[
    str | None, typer.Option("--data", help="Data set, as digits or cifar10.", rich_help_panel=_DATA)
]
Split = Annotated[
    str | None,
    typer.Option(
        help="How clients differ: DirichletByClass(0.1), IID, Pathological(2).", rich_help_panel=_DATA
    ),
]
Clients = Annotated[int | None, typer.Option(help="Number of clients.", rich_help_panel=_DATA)]
Model = Annotated[str | None, typer.Option(help="Model, as mlp or cnn.", rich_help_panel=_DATA)]
Epochs = Annotated[int | None, typer.Option(help="Local epochs a round.", rich_help_panel=_WORK)]
Steps = Annotated[
    int | None, typer.Option(help="Local steps a round, instead of epochs.", rich_help_panel=_WORK)
]
BatchSize = Annotated[
    str | None, typer.Option(metavar="N|all", help="Minibatch size, or all.", rich_help_panel=_WORK)
]
Rate = Annotated[float | None, typer.Option("--lr", help="Local learning rate.", rich_help_panel=_WORK)]
WeightDecay = Annotated[float | None, typer.Option(help="L2 term of every step.", rich_help_panel=_WORK)]
Rounds = Annotated[int | None, typer.Option(help="Communication rounds.", rich_help_panel=_RUN)]
Cohort = Annotated[
    str | None,
    typer.Option(metavar="N|FRACTION", help="Clients a round: a count or a fraction.", rich_help_panel=_RUN),
]
Seed = Annotated[int | None, typer.Option(help="Seed of all randomness.", rich_help_panel=_RUN)]
Engine = Annotated[
    str | None,
    typer.Option(help="How clients are run: auto, serial, stacked, processes.", rich_help_panel=_RUN),
]
EvalEvery = Annotated[int | None, typer.Option(help="Rounds between evaluations.", rich_help_panel=_RUN)]
Target = Annotated[float | None, typer.Option(help="Accuracy to reach, as 0.9.", rich_help_panel=_RUN)]
Probes = Annotated[
    list[str] | None,
    typer.Option(
        "--probe",
        help='Diagnostic, as divergence or "diversity(every=5)"; repeatable.',
        rich_help_panel=_RUN,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as work.lr=0.1; repeatable."),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where to keep it; by default a new directory below runs/."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]

PilotMethod = Annotated[str | None, typer.Option("--method", help="Method of the pilot, as fedavg.")]
PilotRounds = Annotated[int, typer.Option(min=1, help="Rounds of the pilot.", rich_help_panel=_PILOT)]
Points = Annotated[int, typer.Option(min=2, help="Models of it that are measured.", rich_help_panel=_PILOT)]
LookAt = Annotated[
    int, typer.Option(min=1, help="Clients that are measured, at most.", rich_help_panel=_PILOT)
]
Samples = Annotated[int, typer.Option(min=1, help="Samples of each, at most.", rich_help_panel=_PILOT)]
PilotOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Keep what is measured, to go on after an interruption; else nothing is kept.",
        rich_help_panel=_PILOT,
    ),
]

_KEYS = {
    "method": "method",
    "data": "data.name",
    "split": "data.split",
    "clients": "data.clients",
    "model": "model.name",
    "epochs": "work.epochs",
    "steps": "work.steps",
    "batch_size": "work.batch_size",
    "lr": "work.lr",
    "weight_decay": "work.weight_decay",
    "rounds": "rounds",
    "cohort": "cohort",
    "seed": "seed",
    "engine": "engine",
    "eval_every": "eval_every",
    "target": "target",
    "probes": "probes",
}
_READ_AS_TOML = ("cohort", "batch_size")


def experiment(file: Path | None, settings: list[str] | None, options: dict[str, Any]) -> Experiment:
    """Return the experiment of a file (or the default one) with options and then `--set` applied.

    `options` may be all that a command was given: what is no part of an experiment is passed over.
    """
    from fedkeel.experiments.experiment import Experiment  # noqa: PLC0415  heavy

    base = Experiment() if file is None else Experiment.load(file)
    given = [
        f"{_KEYS[name]}={value if name in _READ_AS_TOML else json.dumps(value)}"
        for name, value in options.items()
        if name in _KEYS and value is not None
    ]
    return base.with_settings([*given, *(settings or [])])
