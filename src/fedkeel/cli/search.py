"""`fedkeel sweep` and `fedkeel tune`."""

from __future__ import annotations

import json
import os
import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.resuming import resumable, say_what_is_there
from fedkeel.errors import ConfigError
from fedkeel.experiments.experiment import Experiment
from fedkeel.progress import TimeLeft, console, plain_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedkeel.report.tables import Trial

_SWEEP = """[bold]Examples[/]

fedkeel sweep "method=FedInit(beta={})" --values=-0.1,0,0.05,0.1 --seeds 3 --rounds 40

fedkeel sweep work.epochs --values 1,2,5,10 --workers 2

fedkeel sweep "data.split=DirichletByClass({})" --values 0.05,0.1,0.6 --method scaffold

Run the same line with --out again to go on: finished runs are not repeated."""
_TUNE = """[bold]Examples[/]

fedkeel tune "work.lr=log(0.01, 1)" "method=FedInit(beta={uniform(0, 0.2)})" --trials 30 --rounds 40

fedkeel tune "method=FedSAGD(lam={log(0.01, 1)}, mu={log(0.001, 1)})" --out runs/tuned

Run the same line with --out again to go on with the search."""


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog=_SWEEP)(sweep)
    app.command(epilog=_TUNE)(tune)


@opt.takes_experiment(leave_out=("seed", "workers"))
def sweep(
    experiment: Experiment,
    over: Annotated[str, typer.Argument(metavar="KEY[=TEXT]", help="Setting; {} stands for the value.")],
    values: Annotated[str, typer.Option(help="Values, separated by commas (or ; where they hold commas).")],
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per value: 0, 1, 2, …")] = 3,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; by default one per core.")
    ] = None,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """Run one setting over several values and seeds, in parallel; a table, the best setting, a plot."""
    from fedkeel.columns import shown_score  # noqa: PLC0415
    from fedkeel.experiments.sweep import Sweep, play, report  # noqa: PLC0415
    from fedkeel.report.tables import MethodSummary, cells, reachable_target  # noqa: PLC0415  heavy

    made = Sweep.of(over, values.split(";" if ";" in values else ","), seeds, experiment)
    directory = out or paths.fresh("sweep")
    screen = console(stderr=True)
    jobs = made.jobs(directory)
    say_what_is_there(directory, sum(job.finished() is not None for job in jobs), len(jobs), "runs")
    at_once = workers or os.cpu_count() or 1
    time_left = TimeLeft(len(jobs), at_once)

    def done(trial: Trial, count: int, kept: bool) -> None:
        time_left.count(now=not kept)
        end = trial.problem or shown_score(trial.rows[-1]) or "not evaluated"
        left = ", kept from before" if kept else time_left
        text = f"{count} of {len(jobs)}: {trial.method}, seed {trial.seed}: {end}{left}"
        screen.print(text, style="dim", markup=False, soft_wrap=True)

    with resumable(directory):
        trials = play(made, directory, workers=at_once, done=done)
    found = report(made, trials, directory)
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return
    goal = experiment.target or reachable_target(trials)
    shown = "target" if goal is None else f"{100 * goal:g} %"
    headings = (over, "final accuracy", f"rounds to {shown}", f"sent to {shown}", "seconds")
    console().print(plain_table(headings, [cells(MethodSummary(**line)) for line in found["table"]]))
    ends = [
        f"Best: {found['best'] or 'none'} ({found['best_note']})",
        *found["problems"],
        f"Plot: {directory / 'sweep.svg'}",
    ]
    console().print("\n" + "\n".join(ends), markup=False, soft_wrap=True)


@opt.takes_experiment()
def tune(
    experiment: Experiment,
    ranges: Annotated[
        list[str],
        typer.Argument(metavar="KEY=RANGE", help="uniform(a, b), log(a, b), integer(a, b), choice(…)."),
    ],
    trials: Annotated[int, typer.Option(min=1, help="Trials in all.")] = 20,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """Search settings for the best final accuracy with Optuna; hopeless trials are pruned by rounds."""
    from fedkeel.experiments.comparison import changes  # noqa: PLC0415  heavy
    from fedkeel.experiments.tune import knob  # noqa: PLC0415
    from fedkeel.experiments.tune import tune as search  # noqa: PLC0415
    from fedkeel.report.choosing import ChosenValue  # noqa: PLC0415

    directory = out or paths.fresh("tune")
    screen = console(stderr=True)

    def show_trial(number: int, state: str, value: float | None, chosen: Mapping[str, Any]) -> None:
        shown = ", ".join(f"{key} {_short(one)}" for key, one in chosen.items())
        end = "diverged" if value is None else f"accuracy {100 * value:.1f} %"
        end += ", pruned" * (state == "pruned")
        text = f"trial {number + 1} of {trials}: {shown}: {end}"
        screen.print(text, style="dim", markup=False, soft_wrap=True)

    read = [knob(text) for text in ranges]
    if len({one.key for one in read}) < len(read):
        raise ConfigError("tune: a key is given twice: it can have one range")
    with resumable(directory):
        there = partial(say_what_is_there, directory, total=trials, what="trials")
        found = search(
            experiment, read, directory, trials=trials, seed=experiment.seed, there=there, told=show_trial
        )
    if as_json:
        print(json.dumps({"directory": str(directory), **found._asdict()}, ensure_ascii=False, indent=2))
        return
    lines = [f"{found.trials} trials, {found.pruned} pruned, {found.failed} diverged"]
    if found.accuracy is not None:
        lines.append(f"best accuracy {100 * found.accuracy:.1f} %: {' '.join(found.settings)}")
        lines.append(ChosenValue("", found.accuracy, found.column or "accuracy").note)
        whole = changes(experiment.with_settings(found.settings))
        lines.append("run it: fedkeel run " + " ".join(f"--set {shlex.quote(s)}" for s in whole))
    console().print("\n".join([*lines, f"kept in {directory}"]), markup=False, soft_wrap=True)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
