"""`fedkeel reproduce`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli.studies import Parallel, at_once, carry_out, line_given, takes_settings
from fedkeel.common.errors import ConfigError
from fedkeel.common.progress import as_lines, console, shown_time
from fedkeel.experiments.placement import Placement
from fedkeel.papers.reproduce.estimate import job_seconds, needs, plan_seconds
from fedkeel.papers.reproduce.study import RecipeStudy

if TYPE_CHECKING:
    from fedkeel.papers.reproduce.plan import RecipePlan

OUT = Path("runs") / "reproduce"
_EPILOG = (
    "[bold]Examples[/]\n\n{}\n\nRun the same line again to go on: finished runs are not repeated, and "
    "recipes that need the same runs share them."
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EPILOG.format("\n\n".join(RecipeStudy.examples)))(reproduce)


@takes_settings(RecipeStudy)
def reproduce(
    name: Annotated[str, typer.Argument(help="Recipe, as fedsagd/table2; `fedkeel recipes` lists them.")],
    parallel: Parallel = None,
    on: opt.On = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be run and how long, and run nothing.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="Directory of all recipes' runs; what they share is run once.")
    ] = OUT,
    as_json: opt.Json = False,
    **asked: Any,
) -> None:
    """Run a table or figure of a paper: its numbers beside ours, each claim judged, and a page."""
    address, device = asked["address"], asked["device"]
    if address is not None and on is None:
        raise ConfigError(f"--address {address}: it is that of --on ray: give both, or none")
    study = RecipeStudy.of(recipe=name, **asked)
    workers = at_once(parallel, device)
    if dry_run:
        _print_dry_run(study, study.plan(out), workers, as_json=as_json)
        return
    placement = Placement(workers, on, address)
    carry_out(study, study.plan(out).directory, placement, as_json=as_json, line=line_given(out))


def _print_dry_run(study: RecipeStudy, plan: RecipePlan, workers: int, *, as_json: bool) -> None:
    from fedkeel.papers.reproduce.carrying_out import there  # noqa: PLC0415  loads PyTorch
    from fedkeel.papers.reproduce.outcome import (  # noqa: PLC0415  loads PyTorch
        SIMILARITY_HEADINGS,
        similarity_of,
        similarity_rows,
    )

    histories = None if study.histories is None else Path(study.histories)
    done: dict[Path, Any] = {
        d: r for d, job in plan.distinct.items() if (r := there(job, histories)) is not None
    }
    seconds = plan_seconds(plan, done, workers)
    missing = needs(plan.recipe, plan.scale_name).missing
    jobs = [
        {
            **job.key._asdict(),
            "method": job.table["method"],
            "rounds": job.rounds,
            "seconds": round(job_seconds(job), 1),
            "finished": directory in done,
            "directory": str(directory),
        }
        for directory, job in plan.distinct.items()
    ]
    similarity = similarity_of(plan)
    if as_json:
        facts = {
            "reading": plan.recipe.reading,
            "runs": jobs,
            "seconds": round(seconds),
            "missing": missing,
            "similarity": [one.as_dict() for one in similarity],
        }
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    headings = ("run", "method", "rounds", "estimate")
    rows = [
        [
            str(job.key),
            job.table["method"],
            str(job.rounds),
            "finished" if directory in done else shown_time(job_seconds(job)),
        ]
        for directory, job in reversed(plan.distinct.items())
    ]
    print(as_lines(headings, rows))
    if similarity:
        print(f"\nSimilarity numbers\n\n{as_lines(SIMILARITY_HEADINGS, similarity_rows(similarity))}")
    left = len(jobs) - len(done)
    lines = [f"\n{left} of {len(jobs)} runs are left: about {shown_time(seconds)}, {workers} at a time"]
    lines += [f"missing: {what}" for what in missing]
    console().print("\n".join(lines), markup=False, soft_wrap=True)
