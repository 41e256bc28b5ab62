"""`fedkeel recipes` and `fedkeel recipes show`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fedkeel.cli import options as opt
from fedkeel.cli.studies import takes_settings
from fedkeel.common.progress import as_lines, console, shown_time
from fedkeel.papers.recipes import all_recipes, find_recipe
from fedkeel.papers.recipes.recipe import CPU, PAPER, SMOKE
from fedkeel.papers.reproduce.estimate import needs
from fedkeel.papers.reproduce.study import RecipeStudy

if TYPE_CHECKING:
    from fedkeel.papers.recipes.recipe import Recipe

_DAYS = 48 * 3600  # seconds from which a time is given in days
_EXAMPLES = """[bold]Examples[/]

fedkeel recipes

fedkeel recipes --json > recipes.json"""

_SHOW = """[bold]Examples[/]

fedkeel recipes show fedsagd/table2

fedkeel recipes show fedinit/table6 --reading authors

fedkeel recipes show rethinking/figure1 --json > figure1.json"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    group = typer.Typer()
    group.callback(invoke_without_command=True, epilog=_EXAMPLES)(recipes)
    group.command(epilog=_SHOW)(show)
    app.add_typer(group, name="recipes")


def recipes(context: typer.Context, as_json: opt.Json = False) -> None:
    """List the papers' tables and figures: what each claims, how long it takes here, what is missing."""
    if context.invoked_subcommand is not None:
        return
    listed = [_facts(recipe) for recipe in all_recipes().values()]
    if as_json:
        print(json.dumps(listed, ensure_ascii=False, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, wraps in (
        ("recipe", False),
        ("claim", True),
        ("cpu", False),
        ("paper", False),
        ("missing", True),
    ):
        table.add_column(heading, no_wrap=not wraps)
    for one in listed:
        scales = one["scales"]
        missing = list(dict.fromkeys(what for name in (CPU, PAPER) for what in scales[name]["missing"]))
        only_paper = [what for what in missing if what not in scales[CPU]["missing"]]
        shown = [f"{what} (paper)" if what in only_paper else what for what in missing]
        times = (_shown_needs(scales[name]) for name in (CPU, PAPER))
        table.add_row(
            *map(Text, (one["name"], (one["claims"] or [one["title"]])[0], *times, ", ".join(shown)))
        )
    screen = console()
    screen.print(table)
    cores = os.cpu_count() or 1
    screen.print(
        f"\n{len(listed)} recipe{'s' * (len(listed) != 1)}; the first claim of each. Times are estimates for "
        f"{cores} core{'s' * (cores != 1)}; every recipe also has the scale smoke, of seconds.\n"
        "See one: fedkeel recipes show NAME; run it: fedkeel reproduce NAME --scale cpu",
        markup=False,
        soft_wrap=True,
    )


@takes_settings(RecipeStudy, "reading", "scale")
def show(
    name: Annotated[str, typer.Argument(help="Recipe, as fedsagd/table2.")],
    as_json: opt.Json = False,
    **asked: str,
) -> None:
    """Show one recipe: settings, the paper's table, claims, assumptions, scales, similarity numbers."""
    recipe = find_recipe(name).read(asked["reading"])
    if as_json:
        print(json.dumps(_facts(recipe, whole=True), ensure_ascii=False, indent=2))
        return
    from fedkeel.papers.reproduce.judging import judge_in_paper  # noqa: PLC0415  loads PyTorch
    from fedkeel.papers.reproduce.page import reading_note  # noqa: PLC0415  loads PyTorch
    from fedkeel.papers.reproduce.similarity import why_decisive  # noqa: PLC0415  loads PyTorch

    other = "".join(f"; also: --reading {one}" for one in recipe.readings if one != recipe.reading)
    lines = [f"{recipe.name}: {recipe.title}"]
    lines += [f"Reading {recipe.reading}: {reading_note(recipe).rstrip('.')}{other}", ""]
    for setup_name, setup in recipe.setups.items():
        settings = ", ".join(f"{key}={value}" for key, value in setup.settings.items())
        study = "" if setup.study is None else f"; measured by {setup.study}"
        lines.append(f"setup {setup_name}: {settings or 'see the study'}{study}")
        for row in setup.lines:
            line = setup.line(row)
            own = "".join(f", {key}={value}" for key, value in line.settings.items())
            lines.append(f"  {row}: {line.method}{own}")
    lines += ["", *_printed_tables(recipe), "Claims", ""]
    for claim in recipe.claims:
        lines.append(f"- {claim.text} (in the paper's numbers: {judge_in_paper(claim, recipe)})")
        lines.append(f"  decided by: {why_decisive(claim, recipe)}")
    lines += ["", "Assumptions", "", *(f"- {text}" for text in recipe.assumptions), "", "Scales", ""]
    for scale_name in (PAPER, CPU, SMOKE):
        one = recipe.scale(scale_name)
        found = _needs(recipe, scale_name)
        missing = "".join(f"; missing: {what}" for what in found["missing"])
        needed = f"{_shown_needs(found)}, {one.seeds} seeds{missing}"
        lines.append(f"- {scale_name}: {needed}: {one.note}")
    lines += ["", *_similarity(recipe, asked["scale"])]
    console().print("\n".join(lines), markup=False, soft_wrap=True)


def _similarity(recipe: Recipe, scale: str) -> list[str]:
    """Return how like the paper's experiment a scale is."""
    from fedkeel.papers.reproduce.outcome import (  # noqa: PLC0415  loads PyTorch
        SIMILARITY_HEADINGS,
        similarity_rows,
    )
    from fedkeel.papers.reproduce.similarity import compare_all  # noqa: PLC0415  loads PyTorch

    rows = similarity_rows(compare_all(recipe, recipe.scale(scale)))
    if not rows:
        return ["Similarity numbers: nothing is trained"]
    return [
        f"Similarity numbers, the paper's and those of scale {scale}",
        "",
        as_lines(SIMILARITY_HEADINGS, rows),
    ]


def _needs(recipe: Recipe, scale_name: str) -> dict[str, Any]:
    return needs(recipe, scale_name)._asdict()


def _shown_needs(found: dict[str, Any]) -> str:
    seconds = found["seconds"]
    text = f"{seconds / 86400:,.0f} days" if seconds > _DAYS else shown_time(seconds)
    return f"{text}, {found['memory'] / 1e9:.1f} GB"


def _facts(recipe: Recipe, *, whole: bool = False) -> dict[str, Any]:
    """Return a recipe as plain values."""
    facts: dict[str, Any] = {
        "name": recipe.name,
        "title": recipe.title,
        "reading": recipe.reading,
        "readings": list(recipe.readings),
        "claims": [claim.text for claim in recipe.claims],
        "setups": list(recipe.setups),
        "rows": list(recipe.rows),
        "scales": {
            name: {"seeds": recipe.scale(name).seeds, "note": recipe.scale(name).note, **_needs(recipe, name)}
            for name in (PAPER, CPU, SMOKE)
        },
    }
    if whole:
        from fedkeel.papers.reproduce.similarity import compare_all, decisive  # noqa: PLC0415  loads PyTorch

        facts["decided_by"] = {claim.text: list(decisive(claim, recipe)) for claim in recipe.claims}
        facts["similarity"] = {
            name: [one.as_dict() for one in compare_all(recipe, recipe.scale(name))] for name in (CPU, SMOKE)
        }
        facts["assumptions"] = list(recipe.assumptions)
        facts["settings"] = {name: dict(setup.settings) for name, setup in recipe.setups.items()}
        facts["methods"] = {
            name: {row: {"method": setup.line(row).method, **setup.line(row).settings} for row in setup.lines}
            for name, setup in recipe.setups.items()
        }
        facts["paper"] = [
            {"row": row, "column": heading, **number._asdict()}
            for (row, heading), number in recipe.printed.items()
        ]
    return facts


def _printed_tables(recipe: Recipe) -> Sequence[str]:
    lines: list[str] = []
    for table in recipe.tables:
        if not table.printed:
            continue
        headings = ["", *(column.heading for column in table.columns)]
        rows = [
            [row, *(numbers[c.heading].text if c.heading in numbers else "—" for c in table.columns)]
            for row, numbers in table.printed.items()
        ]
        lines += [
            f"The paper's table{f', {table.title}' if table.title else ''}",
            "",
            as_lines(headings, rows),
            "",
        ]
    return lines
