"""`fedkeel reproduce`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli.resuming import given_command, keep_command, missing_directories, resumable
from fedkeel.common.errors import ConfigError, Diverged
from fedkeel.common.progress import as_lines, console, shown_time
from fedkeel.papers.recipes import find_recipe
from fedkeel.papers.recipes.recipe import PRINTED
from fedkeel.settings.options import Execution

if TYPE_CHECKING:
    from fedkeel.papers.reproduce.plan import RecipePlan

OUT = Path("runs") / "reproduce"
_PLAIN_SECONDS = 30.0
_EXAMPLES = """[bold]Examples[/]

fedkeel reproduce fedsagd/table2 --scale cpu --only emnist --methods fedavg,fedsagd --seeds 3

fedkeel reproduce fedinit/figure1b --scale smoke

fedkeel reproduce fedinit/table6 --reading authors

fedkeel reproduce rethinking/table1 --scale paper --dry-run

fedkeel reproduce fedinit/table4 --scale paper --on ray --address head:6379 --out /shared/reproduce

Run the same line again to go on: finished runs are not repeated, and recipes that need the same runs share
them."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES)(reproduce)


def reproduce(
    name: Annotated[str, typer.Argument(help="Recipe, as fedsagd/table2; `fedkeel recipes` lists them.")],
    scale: opt.Scale = "cpu",
    reading: opt.Reading = PRINTED,
    only: Annotated[
        str | None, typer.Option(metavar="SETUP,…", help="Setups to run, as emnist,cifar10; all by default.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(metavar="ROW,…", help="Rows of the table, as fedavg,fedsagd; all by default."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of seeds: 0, 1, 2, …")] = None,
    parallel: opt.Parallel = None,
    on: opt.On = None,
    address: Annotated[
        str | None,
        typer.Option(help=Execution.model_fields["address"].description),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where the model and its vectors live.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be run and how long, and run nothing.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="Directory of all recipes' runs; what they share is run once.")
    ] = OUT,
    histories: Annotated[
        Path | None,
        typer.Option(help="Directory of small files with finished runs' numbers: read, and added to."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Run a table or figure of a paper: its numbers beside ours, each claim judged, and a page."""
    asked = dict(locals())
    from fedkeel.experiments.placement import Placement  # noqa: PLC0415  heavy
    from fedkeel.experiments.shown_runs import RunsDisplay  # noqa: PLC0415
    from fedkeel.papers.reproduce.carrying_out import carry_out_plan, there  # noqa: PLC0415  heavy
    from fedkeel.papers.reproduce.outcome import outcome_text  # noqa: PLC0415
    from fedkeel.papers.reproduce.page import write_page  # noqa: PLC0415
    from fedkeel.papers.reproduce.plan import plan  # noqa: PLC0415

    if address is not None and on is None:
        raise ConfigError(f"--address {address}: it is that of --on ray: give both, or none")
    if histories is not None and histories.is_file():
        raise ConfigError(f"--histories {histories}: that is a file: name a directory")
    made = plan(
        find_recipe(name).read(reading),
        scale,
        out,
        only=_listed(only),
        methods=_listed(methods),
        seeds=seeds,
        device=device,
    )
    workers = parallel or os.cpu_count() or 1
    before = {d: r for d, job in made.distinct.items() if (r := there(job, histories)) is not None}
    if dry_run:
        _print_dry_run(made, before, workers, as_json=as_json)
        return
    with (
        given_command(reproduce, None, asked),
        resumable(made.directory, missing_directories(made.directory)),
        RunsDisplay(out, begun=lambda: keep_command(made.directory)) as display,
    ):
        outcome = carry_out_plan(
            made, placement=Placement(workers, on, address), histories=histories, events=display
        )
    write_page(outcome, _command(made, only, methods, seeds))
    if as_json:
        print(json.dumps(outcome.as_dict(), ensure_ascii=False, indent=2))
    else:
        print(outcome_text(outcome))
        print(f"\nPage: {made.directory / 'page.html'}")
    if len(outcome.diverged) == len(outcome.results):
        raise Diverged(f"all {len(outcome.results)} runs diverged", round=0)


def _print_dry_run(plan: RecipePlan, there: dict[Path, Any], workers: int, *, as_json: bool) -> None:
    from fedkeel.papers.reproduce.estimate import job_seconds, needs, plan_seconds  # noqa: PLC0415
    from fedkeel.papers.reproduce.outcome import (  # noqa: PLC0415
        SIMILARITY_HEADINGS,
        similarity_of,
        similarity_rows,
    )

    seconds = plan_seconds(plan, there, workers)
    missing = needs(plan.recipe, plan.scale_name).missing
    jobs = [
        {
            **job.key._asdict(),
            "method": job.table["method"],
            "rounds": job.rounds,
            "seconds": round(job_seconds(job), 1),
            "finished": directory in there,
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
            "finished" if directory in there else shown_time(job_seconds(job)),
        ]
        for directory, job in reversed(plan.distinct.items())
    ]
    print(as_lines(headings, rows))
    if similarity:
        print(f"\nSimilarity numbers\n\n{as_lines(SIMILARITY_HEADINGS, similarity_rows(similarity))}")
    left = len(jobs) - len(there)
    lines = [f"\n{left} of {len(jobs)} runs are left: about {shown_time(seconds)}, {workers} at a time"]
    lines += [f"missing: {what}" for what in missing]
    console().print("\n".join(lines), markup=False, soft_wrap=True)


def _listed(text: str | None) -> list[str]:
    """Return the names of a list with commas; an empty one is refused."""
    if text is None:
        return []
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"{text!r}: name at least one, as in --only emnist,cifar10")
    return names


def _command(plan: RecipePlan, only: str | None, methods: str | None, seeds: int | None) -> str:
    given = (("only", only), ("methods", methods), ("seeds", seeds))
    more = "".join(f" --{key} {value}" for key, value in given if value is not None)
    reading = "" if plan.recipe.reading == PRINTED else f" --reading {plan.recipe.reading}"
    return f"fedkeel reproduce {plan.recipe.name} --scale {plan.scale_name}{reading}{more}"
