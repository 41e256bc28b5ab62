"""`fedkeel study constants`: what the theorems ask of the losses, measured along a pilot."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.resuming import command_line, keep_command, resumable
from fedkeel.cli.stage_progress import StageProgress
from fedkeel.common.progress import console, plain_table
from fedkeel.experiments.experiment import Experiment

if TYPE_CHECKING:
    from fedkeel.studies.constants import Findings

EXAMPLES = """[bold]Examples[/]

fedkeel study constants --clients 20 --cohort 20

fedkeel study constants --data cifar10 --model cnn --out runs/constants   (the same line goes on)

fedkeel study constants --json > constants.json"""


@opt.takes_experiment(leave_out=("rounds", "track"))
def constants(
    experiment: Experiment,
    pilot_rounds: opt.PilotRounds = 30,
    pilot_points: opt.PilotPoints = 6,
    pilot_clients: opt.PilotClients = 20,
    pilot_samples: opt.PilotSamples = 256,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """The constants that the theorems ask for, along and around a pilot; `fedkeel advise` says what follows.

    A largest value over samples is a lower bound of the true constant: a longer pilot can raise it.
    """
    effort = {
        "rounds": pilot_rounds,
        "points": pilot_points,
        "clients": pilot_clients,
        "samples": pilot_samples,
    }
    from fedkeel.studies.study_pages import write_study  # noqa: PLC0415  heavy

    directory = out or paths.fresh("constants")
    found = measure(experiment, effort, directory)
    title = f"Constants of {experiment.method} on {experiment.data.name}"
    page = write_study(directory, "constants", found.as_dict(), title, command_line(directory))
    if as_json:
        told = {"directory": str(directory), "page": str(page), **found.as_dict()}
        print(json.dumps(told, ensure_ascii=False, indent=2, allow_nan=False))
        return
    console().print(f"{title}, pilot of {found.pilot_rounds} rounds", markup=False, soft_wrap=True)
    print_constants(found)
    console().print(f"Page with charts: {page}", markup=False, soft_wrap=True)


def measure(experiment: Experiment, effort: dict[str, int], out: Path | None) -> Findings:
    """Run the study of an experiment with progress; `out` is where it can go on."""
    from fedkeel.settings.options import SERIAL  # noqa: PLC0415
    from fedkeel.studies.constants import Effort, study  # noqa: PLC0415  heavy

    with nullcontext() if out is None else resumable(out), StageProgress(stderr=True) as stages:
        return study(
            experiment.settings(),
            SERIAL.model_copy(update={"device": experiment.device}),
            effort=Effort(**effort),
            directory=out,
            progress=stages.update if out is None else _keeping_command(out, stages.update),
        )


def _keeping_command(out: Path, update: Callable[..., None]) -> Callable[..., None]:
    """Write down what was asked for with the first progress: then the directory is known to be free."""
    kept = False

    def told(*arguments: Any, **named: Any) -> None:
        nonlocal kept
        if not kept:
            keep_command(out)
            kept = True
        update(*arguments, **named)

    return told


def print_constants(found: Findings) -> None:
    """Print what was measured, with its spread and what is behind it."""
    from fedkeel.studies.constants_page import HEADINGS, constant_notes, constant_rows  # noqa: PLC0415

    table = plain_table(("", *HEADINGS), constant_rows(found.as_dict()))
    table.columns[-1].justify = "left"
    console().print(table)
    for line in constant_notes(found.as_dict()):
        console().print(line, markup=False, soft_wrap=True)


def number(value: float) -> str:
    """Return a value as the pages print it."""
    return "∞" if math.isinf(value) else f"{value:.4g}"
