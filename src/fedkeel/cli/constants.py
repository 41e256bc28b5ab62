"""`fedkeel study constants`: what the theorems ask of the losses, measured along a pilot."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from fedkeel.cli import options as opt
from fedkeel.cli.resuming import resumable
from fedkeel.cli.stage_progress import StageProgress
from fedkeel.experiments.experiment import Experiment
from fedkeel.progress import console, plain_table

if TYPE_CHECKING:
    from fedkeel.studies.constants import Estimate, Findings, Frontier

EXAMPLES = """[bold]Examples[/]

fedkeel study constants --clients 20 --cohort 20

fedkeel study constants --data cifar10 --model cnn --out runs/constants   (the same line goes on)

fedkeel study constants --json > constants.json"""
CONSTANT_HEADINGS = ("value", "from", "to", "samples", "how")
_SYMBOLS = {
    "L": "L",
    "L_power": "  from Hessians",
    "L_pairs": "  from pairs",
    "L_G": "L_G",
    "sigma_l2": "σ_l²",
    "sigma_g2": "σ_g²",
    "Phi": "Φ",
    "D": "D",
    "U": "U",
    "mu": "μ (PL)",
    "tau1": "τ1",
    "tau2": "τ2",
    "a": "a",
    "b": "b",
    "alpha": "α",
    "beta": "β",
    "interpolation_a": "a (FedInit)",
    "interpolation_b": "b (FedInit)",
    "sample_gradient": "‖g_z‖",
    "sample_spread": "‖g_z − ∇f_i‖",
    "G2": "G² (poster)",
    "B2": "B² (poster)",
}


@opt.takes_experiment(leave_out=("rounds", "track"))
def constants(
    experiment: Experiment,
    pilot_rounds: opt.PilotRounds = 30,
    pilot_points: opt.PilotPoints = 6,
    pilot_clients: opt.PilotClients = 20,
    pilot_samples: opt.PilotSamples = 256,
    out: opt.PilotOut = None,
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
    found = measure(experiment, effort, out)
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False, indent=2, allow_nan=False))
        return
    title = f"{experiment.method} on {experiment.data.name}, pilot of {found.pilot_rounds} rounds"
    console().print(title, markup=False, soft_wrap=True)
    print_constants(found)


def measure(experiment: Experiment, effort: dict[str, int], out: Path | None) -> Findings:
    """Run the study of an experiment with progress; `out` is where it can go on."""
    from fedkeel.options import SERIAL  # noqa: PLC0415
    from fedkeel.studies.constants import Effort, study  # noqa: PLC0415  heavy

    with nullcontext() if out is None else resumable(out), StageProgress(stderr=True) as stages:
        return study(
            experiment.settings(),
            SERIAL.model_copy(update={"device": experiment.device}),
            effort=Effort(**effort),
            directory=out,
            progress=stages.update,
        )


def print_constants(found: Findings) -> None:
    """Print what was measured, with its spread and what is behind it."""
    table = plain_table(("", *CONSTANT_HEADINGS), constant_rows(found))
    table.columns[-1].justify = "left"
    console().print(table)
    for line in constant_notes(found):
        console().print(line, markup=False, soft_wrap=True)


def constant_rows(found: Findings) -> list[tuple[str, ...]]:
    """Return a line per constant: symbol, value, spread, samples, how it was measured."""
    return [_constant(_SYMBOLS[name], one) for name, one in _ordered(found.estimates)]


def constant_notes(found: Findings) -> tuple[str, ...]:
    """Return the corners of what was fitted, and what is to be said of it."""
    return (
        f"frontier (a, b):   {_corners(found.fit.smooth)}",
        f"frontier (α², β²): {_corners(found.fit.lipschitz)}",
        *(f"Note: {note}" for note in found.notes),
    )


def number(value: float) -> str:
    """Return a value as the pages print it."""
    return "∞" if math.isinf(value) else f"{value:.4g}"


def _ordered(estimates: dict[str, Estimate]) -> list[tuple[str, Estimate]]:
    return [(name, estimates[name]) for name in _SYMBOLS]


def _constant(symbol: str, one: Estimate) -> tuple[str, ...]:
    return (symbol, number(one.value), number(one.low), number(one.high), str(one.samples), one.how)


def _corners(frontier: Frontier) -> str:
    shown = " ".join(f"({number(p)}, {number(q)})" for p, q in frontier.corners)
    return f"{shown}, on {frontier.samples} pairs"
