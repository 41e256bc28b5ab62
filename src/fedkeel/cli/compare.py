"""`fedkeel compare` and `fedkeel demo`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.wide_table import print_table
from fedkeel.common.errors import Diverged, RunsLost, Stopped, StorageError, TooFewClients
from fedkeel.common.progress import console
from fedkeel.experiments import COMPARISON_FILE
from fedkeel.experiments.experiment import Experiment
from fedkeel.report.table_columns import COLUMNS, parse_columns

if TYPE_CHECKING:
    from fedkeel.experiments.placement import Placement
    from fedkeel.report import MethodSummary, Trial
    from fedkeel.studies.comparison import Comparison

_COMPARE_EXAMPLES = """[bold]Examples[/]

fedkeel compare --method fedavg --method scaffold --method feddyn --seeds 5 --target 0.9

fedkeel compare --method fedavg --method "relaxed(scaffold, beta=0.1)" --rounds 100 --out runs/relaxed

fedkeel compare --method fedavg --method fedcm --columns top,smoothed:50,rounds_to_target --target 0.8

fedkeel compare experiment.toml --method fedavg --method fedcm --json > table.json

fedkeel compare --method fedavg --method scaffold --on ray --address head:6379 --out /shared/compare

Run the same line again to go on after an interruption, or with more methods or seeds: finished runs below
--out are not repeated."""
_DEMO_EXAMPLES = """[bold]Examples[/]

fedkeel demo

fedkeel demo --out runs/first"""
_DEMO_METHODS = ("FedAvg", "SCAFFOLD", "FedInit")
_DEMO = ("rounds=40", "data.clients=50", "data.split=DirichletByClass(0.1)", "cohort=10", "target=0.85")


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog=_DEMO_EXAMPLES)(demo)
    app.command(epilog=_COMPARE_EXAMPLES + opt.OTHER_SETTINGS)(compare)


def demo(columns: opt.TableColumns = None, out: opt.Out = None, as_json: opt.Json = False) -> None:
    """See a result in a minute: three methods × three seeds on digits, on clients that differ strongly."""
    from fedkeel.studies.comparison import Comparison  # noqa: PLC0415  heavy

    base = Experiment().with_settings(_DEMO)
    comparison = Comparison.of(_DEMO_METHODS, 3, base, columns=COLUMNS if columns is None else columns)
    _run_comparison(comparison, out or paths.fresh("demo"), as_json=as_json)


@opt.takes_experiment(leave_out=("method", "seed"), show=opt.TRAINING)
def compare(
    experiment: Experiment,
    method: opt.Methods,
    seeds: opt.Seeds = 3,
    measure: opt.MeasureRule = "final",
    columns: opt.TableColumns = None,
    parallel: opt.Parallel = None,
    on: opt.On = None,
    out: opt.Out = None,
    as_json: opt.Json = False,
) -> None:
    """Compare methods over seeds: a table, a verdict with its confidence interval, a page with curves.

    A seed decides the split, the noise, the first model, the cohorts and the minibatches, and is shared by
    all methods. Without --target, the highest accuracy that every run reached serves.
    """
    from fedkeel.experiments.placement import Placement  # noqa: PLC0415
    from fedkeel.studies.comparison import Comparison  # noqa: PLC0415  heavy

    asked = COLUMNS if columns is None else columns
    placement, experiment = Placement.of(parallel or 1, on, experiment)
    comparison = Comparison.of(method, seeds, experiment, measure, asked)
    _run_comparison(comparison, out or paths.fresh("compare"), placement, as_json=as_json)


def go_on(directory: Path, rounds: int | None, columns: str | None, *, as_json: bool) -> None:
    """Go on with the comparison in a directory, with other columns where they are given."""
    from fedkeel.experiments.scoring import check_scoring  # noqa: PLC0415
    from fedkeel.studies.comparison import Comparison  # noqa: PLC0415  heavy

    comparison = Comparison.load(directory)
    longer = [] if rounds is None else [f"rounds={rounds}"]
    comparison = comparison._replace(base=comparison.base.with_settings(longer))
    if columns is not None:
        comparison = comparison._replace(columns=parse_columns(columns))
        runs = [comparison.experiment(method, 0) for method in comparison.methods]
        check_scoring(runs, comparison.measure, comparison.columns)
    _run_comparison(comparison, directory, as_json=as_json)


def _run_comparison(
    comparison: Comparison, out: Path, placement: Placement | None = None, *, as_json: bool
) -> None:
    from fedkeel.experiments.shown_runs import RunsDisplay  # noqa: PLC0415
    from fedkeel.studies.comparison import play  # noqa: PLC0415  heavy

    _check_free(out, comparison)
    try:
        with RunsDisplay(out, stderr=as_json) as display:
            trials = play(comparison, out, placement, display)
    except (Stopped, TooFewClients, RunsLost) as problem:
        before = "\n" if isinstance(problem, Stopped) else ""
        problem.args = (f"{before}{problem}\nresume with: fedkeel resume {shlex.quote(str(out))}",)
        raise
    comparison.save(out)
    found = report(comparison, trials, out)
    _write_page(comparison, trials, Path(found["page"]))
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        print_report(found, trials)
    refuse_diverged(trials)


def refuse_diverged(trials: list[Trial]) -> None:
    """End a command, whose table is printed, with the exit code of runs that diverged."""
    from fedkeel.report.tables import why_diverged  # noqa: PLC0415

    problems = [(trial, reason) for trial in trials if (reason := why_diverged(trial)) is not None]
    if problems:
        first, reason = problems[0]
        text = f"{len(problems)} of {len(trials)} runs diverged; {first.label}, seed {first.seed}: "
        raise Diverged(text + reason, round=len(first.rows))


def _check_free(out: Path, comparison: Comparison) -> None:
    """Refuse a directory that holds something else than this comparison, or what was begun of it."""
    from fedkeel.common.files import storage_errors, temporary_name  # noqa: PLC0415

    with storage_errors(out):
        found = sorted(path.name for path in out.iterdir()) if out.exists() else []
    ours = (".lock", temporary_name(out / COMPARISON_FILE).name, *comparison.folders)
    strangers = [name for name in found if name not in ours]
    if strangers and COMPARISON_FILE not in strangers:
        raise StorageError(f"{out}: holds {strangers[0]} and no comparison: choose an empty or new directory")


def report(comparison: Comparison, trials: list[Trial], out: Path) -> dict[str, Any]:
    """Return the comparison's numbers for people and programs."""
    from fedkeel.report import find_verdict, reachable_target, summarise  # noqa: PLC0415

    target = comparison.base.target or reachable_target(trials, comparison.score.metric)
    verdict = find_verdict(trials, comparison.score)
    folders = {(job.method, job.seed): str(job.directory) for job in comparison.jobs(out)}
    return {
        "directory": str(out),
        "page": str(out / "page.html"),
        "command": comparison.command(),
        "target": target,
        "columns": list(comparison.columns),
        "methods": [
            _summary_table(line) for line in summarise(trials, target, comparison.score, comparison.columns)
        ],
        "verdict": verdict.as_dict(),
        "runs": [
            {
                "method": trial.label,
                "seed": trial.seed,
                "directory": folders[trial.label, trial.seed],
                "rounds": len(trial.rows),
                "accuracy": trial.rows[-1]["accuracy"] if trial.rows else None,
                "problem": trial.problem,
            }
            for trial in trials
        ],
    }


def _summary_table(line: MethodSummary) -> dict[str, Any]:
    """Return a line for JSON: here its label is always a method."""
    table = line._asdict()
    return {"method": table.pop("label"), **table}


def _write_page(comparison: Comparison, trials: list[Trial], path: Path) -> None:
    from fedkeel.directories.pages import comparison_document  # noqa: PLC0415  heavy
    from fedkeel.report.page.rendering import write_page  # noqa: PLC0415

    write_page(comparison_document(comparison, trials, path.parent), path)


def print_report(found: dict[str, Any], trials: list[Trial]) -> None:
    """Print the table, the verdict and where the page is."""
    from fedkeel.report import summarise  # noqa: PLC0415
    from fedkeel.report.measures import parse_measure  # noqa: PLC0415
    from fedkeel.report.tables import cells, headings  # noqa: PLC0415

    screen = console()
    target, measure = found["target"], parse_measure(found["verdict"]["measure"])
    columns = found["columns"]
    lines = [cells(line, columns) for line in summarise(trials, target, measure, columns)]
    screen.print()
    print_table(screen, headings(target, measure, columns), lines)
    text = f"\n{found['verdict']['sentence']}"
    if Path(found["page"]).exists():
        text += f"\n\nPage with curves: {found['page']}"
    screen.print(text, markup=False, soft_wrap=not screen.is_terminal)
