"""`fedkeel sweep` and `fedkeel tune`."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.compare import refuse_diverged
from fedkeel.cli.resuming import keep_command, resumable, say_what_is_there
from fedkeel.cli.sweep_page import print_sweep
from fedkeel.common.errors import ConfigError
from fedkeel.common.progress import console
from fedkeel.experiments.experiment import Experiment
from fedkeel.report.table_columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

_SWEEP = """[bold]Examples[/]

fedkeel sweep --over "method=FedInit(beta={})" --values=-0.1,0,0.05,0.1 --seeds 3 --rounds 40

fedkeel sweep experiment.toml --over work.epochs --values 1,2,5,10 --parallel 2

fedkeel sweep --over "data.split=DirichletByClass({})" --values 0.05,0.1,0.6 --method scaffold

fedkeel sweep --over cohort --values 5,10,20 --on ray --address head:6379 --out /shared/cohorts

fedkeel sweep --over work.lr --values 0.01,0.1 --probe drift --measure "last:20 of drift (min)"

Run the same line with --out again to go on: finished runs are not repeated."""
_TUNE = """[bold]Examples[/]

fedkeel tune --over "work.lr=log(0.01, 1)" --over "method=FedInit(beta={uniform(0, 0.2)})" --trials 30

fedkeel tune experiment.toml --over "method=FedSAGD(lam={log(0.01, 1)}, mu={log(0.001, 1)})"

fedkeel tune --over "work.lr=log(0.01, 1)" --trials 64 --parallel 16 --on ray --address auto --out /shared/lr

Run the same line with --out again to go on with the search."""


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog=_SWEEP + opt.OTHER_SETTINGS)(sweep)
    app.command(epilog=_TUNE + opt.OTHER_SETTINGS)(tune)


@opt.takes_experiment(leave_out=("seed",), show=opt.TRAINING)
def sweep(
    experiment: Experiment,
    over: Annotated[
        list[str],
        typer.Option(
            metavar="KEY[=TEXT]",
            help='What varies: a setting, as work.lr or "method=FedInit(beta={})"; {} stands for the value.',
        ),
    ],
    values: opt.Values,
    seeds: opt.Seeds = 3,
    measure: opt.MeasureRule = "final",
    columns: opt.TableColumns = None,
    parallel: opt.Parallel = None,
    on: opt.On = None,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """Run one setting over several values and seeds, in parallel; a table with intervals and a plot."""
    from fedkeel.directories.pages import sweep_document  # noqa: PLC0415  heavy
    from fedkeel.experiments.placement import Placement  # noqa: PLC0415
    from fedkeel.experiments.shown_runs import RunsDisplay  # noqa: PLC0415
    from fedkeel.report.page.rendering import write_page  # noqa: PLC0415
    from fedkeel.studies.sweep import Sweep, play, report  # noqa: PLC0415

    if len(over) > 1:
        raise ConfigError(
            f"sweep: --over {', '.join(over)}: a sweep varies one setting; `fedkeel tune` searches several"
        )
    asked = COLUMNS if columns is None else columns
    at_once = parallel or os.cpu_count() or 1
    placement, experiment = Placement.of(at_once, on, experiment)
    made = Sweep.of(over[0], opt.split_values(values), seeds, experiment, measure=measure, columns=asked)
    directory = out or paths.fresh("sweep")
    with resumable(directory), RunsDisplay(directory, begun=lambda: keep_command(directory)) as display:
        trials = play(made, directory, placement=placement, events=display)
    found = report(made, trials, directory)
    write_page(sweep_document(directory), directory / "page.html")
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        print_sweep(found)
    refuse_diverged(trials)


@opt.takes_experiment(show=opt.TRAINING)
def tune(
    experiment: Experiment,
    over: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=RANGE",
            help="What varies, and where: uniform(a, b), log(a, b), integer(a, b), choice(…); repeatable.",
        ),
    ],
    trials: Annotated[int, typer.Option(min=1, help="Trials in all.")] = 20,
    parallel: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Trials at a time: they are drawn together, not knowing of each other."
        ),
    ] = 1,
    on: opt.On = None,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """Search settings for the best final accuracy with Optuna; hopeless trials are pruned by rounds."""
    from fedkeel.experiments.placement import Placement  # noqa: PLC0415
    from fedkeel.report.choosing import ChosenValue  # noqa: PLC0415
    from fedkeel.studies.comparison import changes  # noqa: PLC0415  heavy
    from fedkeel.studies.tune import knob  # noqa: PLC0415
    from fedkeel.studies.tune import tune as search  # noqa: PLC0415

    placement, experiment = Placement.of(parallel, on, experiment)
    directory = out or paths.fresh("tune")
    screen = console(stderr=True)

    def show_trial(number: int, state: str, value: float | None, chosen: Mapping[str, Any]) -> None:
        shown = ", ".join(f"{key} {_short(one)}" for key, one in chosen.items())
        end = "diverged" if value is None else f"accuracy {100 * value:.1f} %"
        end += ", pruned" * (state == "pruned")
        text = f"trial {number + 1} of {trials}: {shown}: {end}"
        screen.print(text, style="dim", markup=False, soft_wrap=True)

    read = [knob(text) for text in over]
    if len({one.key for one in read}) < len(read):
        keys = [one.key for one in read]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"tune: --over {twice} is given twice: it can have one range")
    with resumable(directory):

        def there(count: int) -> None:
            keep_command(directory)
            say_what_is_there(directory, count, trials, "trials")

        found = search(
            experiment,
            read,
            directory,
            trials=trials,
            seed=experiment.seed,
            at_once=parallel,
            placement=placement,
            there=there,
            told=show_trial,
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
