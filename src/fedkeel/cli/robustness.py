"""`fedkeel study robustness`."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.resuming import command_line, keep_command, missing_directories, resumable
from fedkeel.common.progress import as_lines, console
from fedkeel.experiments.experiment import Experiment

EXAMPLES = """[bold]Examples[/]

fedkeel study robustness --method fedavg --method scaffold --rounds 30 --cohort 20 --out runs/hostile

fedkeel study robustness --method scaffold --reducer median --reducer "krum(0.3)" --attack "SignFlip(0.2)"

Run the same line with --out again to go on after an interruption, or with more methods, reducers, attacks or
seeds: what is finished below it is not repeated."""

Reducers = Annotated[
    list[str] | None,
    typer.Option(
        "--reducer", help='Reducer beside the mean, as "TrimmedMean(0.2)"; repeatable. By default all.'
    ),
]
Attacks = Annotated[
    list[str] | None,
    typer.Option("--attack", help='Attack, as "SignFlip(share=0.2)"; repeatable. By default all, with 20 %.'),
]


@opt.takes_experiment(leave_out=("method", "seed", "reducer", "attack"), show=opt.TRAINING)
def robustness(
    experiment: Experiment,
    method: opt.Methods,
    reducer: Reducers = None,
    attack: Attacks = None,
    seeds: opt.Seeds = 3,
    measure: opt.MeasureRule = "final",
    parallel: opt.Parallel = None,
    on: opt.On = None,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """Accuracy with and without hostile clients, per method and reducer: who holds out against what."""
    from fedkeel.experiments.placement import Placement  # noqa: PLC0415
    from fedkeel.experiments.shown_runs import RunsDisplay  # noqa: PLC0415
    from fedkeel.studies import robustness as study  # noqa: PLC0415  heavy
    from fedkeel.studies.robustness_page import robustness_grids, robustness_text  # noqa: PLC0415
    from fedkeel.studies.study_pages import write_study  # noqa: PLC0415

    at_once = parallel or os.cpu_count() or 1
    placement, experiment = Placement.of(at_once, on, experiment)
    made = study.RobustnessStudy.of(
        method,
        experiment,
        reducers=reducer or study.REDUCERS,
        attacks=attack or study.ATTACKS,
        seeds=seeds,
        measure=measure,
    )
    directory = out or paths.fresh("robustness")
    with (
        resumable(directory, missing_directories(directory)),
        RunsDisplay(directory, begun=lambda: keep_command(directory)) as display,
    ):
        trials = study.play_robustness(made, directory, placement=placement, events=display)
    found = study.robustness_findings(made, trials)
    page = write_study(
        directory, "robustness", found, f"Robustness of {', '.join(made.methods)}", command_line(directory)
    )
    if as_json:
        told = {"directory": str(directory), "page": str(page), **found}
        print(json.dumps(told, ensure_ascii=False, indent=2))
        return
    grids = [f"{method}\n{as_lines(*grid)}\n" for method, grid in robustness_grids(found).items()]
    text = "\n".join([*grids, *robustness_text(found), f"Page with charts: {page}"])
    console().print(text, markup=False, highlight=False, soft_wrap=True)
