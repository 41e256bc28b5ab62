"""The page of a reproduced table or figure: claims, the paper's numbers beside ours, curves, assumptions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from fedkeel.common.errors import StorageError
from fedkeel.common.files import make_directory, storage_errors, write_durably
from fedkeel.common.jsonfiles import json_text, sealed
from fedkeel.experiments import OUTCOME_FILE, OUTCOME_TEXT
from fedkeel.papers.recipes.claims import CellKey
from fedkeel.papers.recipes.recipe import PRINTED, Panel, Recipe
from fedkeel.papers.reproduce.judging import JudgedClaim
from fedkeel.papers.reproduce.outcome import (
    SIMILARITY_HEADINGS,
    Outcome,
    outcome_text,
    shown_tables,
    similarity_of,
    similarity_rows,
)
from fedkeel.report.page.document import (
    Axis,
    Chart,
    Code,
    Document,
    Section,
    Series,
    Table,
    Text,
    Tone,
    Verdict,
)
from fedkeel.report.page.rendering import write_page as write_document
from fedkeel.report.page.runs import short
from fedkeel.report.tables import curve

Points = list[tuple[float, float]]
_PAGE_JSON = "page.json"  # the page as data, so that it can be shown together with others
_TONES: dict[str, Tone] = {"holds": "good", "does not hold": "bad", "not resolved": "unclear"}


def write_page(outcome: Outcome, command: str) -> None:
    """Write the page, and beside it the numbers as JSON and as text."""
    write_document(write_numbers(outcome, command), outcome.plan.directory / "page.html")


def write_numbers(outcome: Outcome, command: str) -> Document:
    """Write the numbers as JSON and as text, and the page as data, which is returned."""
    directory = outcome.plan.directory
    document = recipe_document(outcome, command)
    with storage_errors(directory):
        make_directory(directory)
        text = f"{outcome_text(outcome)}\n"
        numbers = sealed({**outcome.as_dict(), "text": text})
        write_durably(directory / OUTCOME_FILE, json_text(numbers, indent=2).encode())
        write_durably(directory / OUTCOME_TEXT, text.encode())
        write_durably(directory / _PAGE_JSON, document.to_json().encode())
    return document


def kept_document(directory: Path) -> Document:
    """Return the page that was written of a recipe."""
    file = directory / _PAGE_JSON
    try:
        return _with_scores(Document.model_validate_json(file.read_text()))
    except (OSError, ValidationError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is no page of fedkeel's"
        raise StorageError(
            f"{file}: cannot be read ({reason}): run the same `fedkeel reproduce` line again to write it anew"
        ) from None


def _with_scores(page: Document) -> Document:
    """Mark the table of results, which a page's data does not say."""
    sections = tuple(
        section.model_copy(
            update={
                "blocks": tuple(
                    block.model_copy(update={"scores": True}) if block.id == "paper-1" else block
                    for block in section.blocks
                )
            }
        )
        for section in page.sections
    )
    return page.model_copy(update={"sections": sections})


def recipe_document(outcome: Outcome, command: str) -> Document:
    """Return the page: what is claimed and found, the numbers beside the paper's, curves, assumptions."""
    plan, recipe, seeds = outcome.plan, outcome.plan.recipe, outcome.plan.scale.seeds
    charts = tuple(_charts(outcome))
    sections = [
        Section(
            id="paper",
            title="The paper's numbers and ours",
            about=f"Mean ± standard deviation over {seeds} seed{'s' * (seeds != 1)}. {_left_out(outcome)}",
            blocks=tuple(_tables(outcome)),
        )
    ]
    if outcome.claims:
        sections.insert(0, Section(id="claims", title="Claims", blocks=(_claims(outcome.claims),)))
    if charts:
        sections.append(Section(id="curves", title="Curves", blocks=charts))
    if (similar := _similarity(outcome)) is not None:
        sections.append(similar)
    if recipe.assumptions:
        listed = Text(id="assumptions-list", paragraphs=tuple(recipe.assumptions), listed=True)
        about = f"Reading {recipe.reading}: {reading_note(recipe)}"
        sections.append(Section(id="assumptions", title="Assumptions", about=about, blocks=(listed,)))
    sections.append(
        Section(
            id="provenance",
            title="Provenance",
            blocks=(Code(id="command", title="Run it again", text=command), _runs(outcome)),
        )
    )
    return Document(
        title=f"{recipe.name}: {recipe.title}",
        subtitle=f"Reading {recipe.reading}. Scale {plan.scale_name}: {plan.scale.note}",
        kind="recipe",
        subject="row",
        verdict=_verdict(outcome.claims),
        facts=(
            ("reading", recipe.reading),
            ("scale", plan.scale_name),
            ("seeds", f"{seeds}"),
            ("runs", f"{len(outcome.results)}"),
            ("diverged", f"{len(outcome.diverged)}"),
            ("setups", f"{len(plan.setups)} of {len(recipe.setups)}"),
        ),
        sections=tuple(sections),
    )


def _verdict(claims: list[JudgedClaim]) -> Verdict | None:
    """Return how many of the paper's claims the runs bear out."""
    if not claims:
        return None
    counts = {finding: sum(one.finding == finding for one in claims) for finding in _TONES}
    apart = sum(one.finding == "not comparable here" for one in claims)
    many = f"{len(claims)} claim{'s' * (len(claims) != 1)}"
    words = (
        (counts["holds"], "holds", "hold"),
        (counts["does not hold"], "does not hold", "do not hold"),
        (counts["not resolved"], "is not resolved by these seeds", "are not resolved by these seeds"),
        (apart, "is not comparable here", "are not comparable here"),
        (len(claims) - sum(counts.values()) - apart, "was not run", "were not run"),
    )
    parts = [f"{count} {one if count == 1 else several}" for count, one, several in words if count]
    tone: Tone = "good" if counts["holds"] == len(claims) else "bad" if counts["does not hold"] else "unclear"
    return Verdict(text=f"Of {many} of the paper, in these runs {', '.join(parts)}.", tone=tone)


def _claims(claims: list[JudgedClaim]) -> Table:
    return Table(
        id="claims-table",
        title="What the paper claims, and what these runs say",
        headings=("claim", "in our runs", "in the paper's numbers", "why", "decided by"),
        rows=tuple((one.claim.text, one.finding, one.in_paper, one.why, one.because) for one in claims),
        tones=tuple(_TONES.get(one.finding, "") for one in claims),
        wide=(0, 3, 4),
        left=(0, 1, 2, 3, 4),
    )


def _similarity(outcome: Outcome) -> Section | None:
    """Return what these runs share with the paper's; None where nothing was trained."""
    rows = similarity_rows(similarity_of(outcome.plan))
    clipped = _clipped_share(outcome)
    if not rows:
        return None
    table = Table(
        id="similarity-table",
        title="Similarity numbers",
        headings=tuple(SIMILARITY_HEADINGS),
        rows=tuple(tuple(row) for row in rows),
        left=(0, 1, 2),
        wide=(2,),
    )
    about = (
        "How like the paper's experiment these runs are. A number that decides a claim must agree within a "
        f"factor of three, else the claim is not comparable here. {clipped}"
    )
    return Section(id="similarity", title="How like the paper's experiment", about=about, blocks=(table,))


def _clipped_share(outcome: Outcome) -> str:
    """Return how many of the local steps were clipped, which only a run can tell."""
    found: dict[str, list[float]] = {}
    for key, result in outcome.results.items():
        shares = [row["clipped"] for row in result.rows if row.get("clipped") is not None]
        if shares:
            found.setdefault(key.row, []).append(statistics.fmean(shares))
    if not found:
        return ""
    parts = ", ".join(f"{row} {100 * statistics.fmean(shares):.0f} %" for row, shares in found.items())
    return f"Share of clipped local steps: {parts}."


def reading_note(recipe: Recipe) -> str:
    """Return what a reading rests on."""
    if recipe.reading == PRINTED:
        return "the paper alone, and these assumptions where it is silent or contradicts itself."
    assert recipe.authors is not None
    return recipe.authors.source


def _left_out(outcome: Outcome) -> str:
    plan = outcome.plan
    setups = [name for name in plan.recipe.setups if name not in plan.setups]
    rows = [row for row in plan.recipe.rows if row not in plan.rows]
    parts = [
        f"{what} not run: {', '.join(names)}."
        for what, names in (("Setups", setups), ("Rows", rows))
        if names
    ]
    return " ".join(parts)


def _tables(outcome: Outcome) -> Iterator[Table]:
    for number, (title, headings, rows) in enumerate(shown_tables(outcome), start=1):
        yield Table(
            id=f"paper-{number}",
            scores=number == 1,
            title=title or headings[0] or f"Table {number}",
            headings=tuple(headings),
            rows=tuple(tuple(row) for row in rows),
        )


def _runs(outcome: Outcome) -> Table:
    rows = tuple(
        (
            job.key.setup,
            job.key.row,
            f"{job.key.seed}",
            outcome.results[job.key].problem or "finished",
            str(job.directory),
        )
        for job in outcome.plan.jobs
        if job.key in outcome.results
    )
    headings = ("setup", "row", "seed", "state", "directory")
    return Table(id="runs", title="Runs", headings=headings, rows=rows, left=(0, 1, 3, 4), wide=(3,))


def _charts(outcome: Outcome) -> Iterator[Chart]:
    panels = outcome.plan.recipe.panels or _curves_of_tables(outcome)
    for number, panel in enumerate(panels, start=1):
        chart = panel_chart(outcome, panel, f"panel-{number}")
        if chart is not None:
            yield chart


def _curves_of_tables(outcome: Outcome) -> tuple[Panel, ...]:
    """Return the accuracy of each setup against the rounds: tables have no panels of their own."""
    return tuple(Panel(f"test accuracy, {name}", name, "accuracy") for name in outcome.plan.setups)


def panel_chart(outcome: Outcome, panel: Panel, name: str) -> Chart | None:
    """Return a panel of a figure; None where nothing of it was run."""
    rows = [row for row in outcome.plan.rows if panel.rows is None or row in panel.rows]
    if panel.against == "rows":
        return _against_rows(outcome, panel, rows, name)
    curves = {row: _mean_curve(outcome, panel, row) for row in rows}
    series = tuple(
        Series(
            name=row,
            x=tuple(x for x, _ in points),
            y=tuple(short(y) if y > 0 or not panel.log else None for _, y in points),
            colour=index,
        )
        for index, (row, points) in enumerate(curves.items())
        if points
    )
    if not series:
        return None
    steps = getattr(outcome.plan.recipe.setups.get(panel.setup, None), "study", None)
    x = "local step" if getattr(steps, "along", "") == "steps" else "round"
    return Chart(
        id=name, title=panel.title, x=Axis(label=x), y=Axis(label=panel.column, log=panel.log), series=series
    )


def _mean_curve(outcome: Outcome, panel: Panel, row: str) -> Points:
    """Return a column of the histories, the mean over the seeds, in the rounds that all of them have."""
    found = [
        dict(curve(result.rows, metric=panel.column))
        for key, result in outcome.results.items()
        if (key.setup, key.row) == (panel.setup, row)
    ]
    shared = sorted(set.intersection(*map(set, found))) if found else []
    means = [(round, statistics.fmean(one[round] for one in found)) for round in shared]
    return [(round, mean) for round, mean in means if math.isfinite(mean)]


def _against_rows(outcome: Outcome, panel: Panel, rows: list[str], name: str) -> Chart | None:
    points = []
    for row in rows:
        cell = outcome.cells.get(CellKey(row, panel.column))
        x = row_number(row)
        if cell is not None and cell.mean is not None and x is not None:
            points.append((x, cell.mean, min(cell.values), max(cell.values)))
    if not points:
        return None
    places, mean, low, high = zip(*sorted(points), strict=True)
    ours = Series(name="ours", x=places, y=tuple(map(short, mean)), low=low, high=high)
    y = Axis(label=panel.column, log=panel.log)
    return Chart(id=name, title=panel.title, x=Axis(label=panel.title), y=y, series=(ours,))


def row_number(row: str) -> float | None:
    """Return the number in a row's name, as in `β = 0.1` or `0.99`; None where there is none.

    >>> row_number("β = 0.1")
    0.1
    """
    try:
        return float(row.rpartition("=")[2].strip().replace("−", "-"))
    except ValueError:
        return None
