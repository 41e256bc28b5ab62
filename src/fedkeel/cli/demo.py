"""`fedkeel demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.studies import carry_out, option_of
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.placement import ONE_BY_ONE
from fedkeel.studies.comparison import Comparison

_EXAMPLES = """[bold]Examples[/]

fedkeel demo

fedkeel demo --out runs/first"""
_METHODS = ("FedAvg", "SCAFFOLD", "FedInit")
_SETTINGS = ("rounds=40", "data.clients=50", "data.split=DirichletByClass(0.1)", "cohort=10", "target=0.85")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES)(demo)


def demo(
    columns: Annotated[str | None, option_of(Comparison, "columns")] = None,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """See a result in a minute: three methods × three seeds on digits, on clients that differ strongly."""
    experiment = Experiment().with_settings(_SETTINGS)
    comparison = Comparison.of(experiment, methods=_METHODS, columns=columns)
    carry_out(comparison, out or paths.fresh("demo"), ONE_BY_ONE, as_json=as_json)
