"""What came out of a recipe: its tables with the paper's numbers beside ours, and its claims judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from fedkeel.common.progress import as_lines
from fedkeel.papers.recipes.claims import CellKey
from fedkeel.papers.recipes.recipe import Column
from fedkeel.papers.reproduce.jobs import JobResult
from fedkeel.papers.reproduce.judging import JudgedClaim, judge
from fedkeel.papers.reproduce.plan import JobKey, RecipePlan
from fedkeel.papers.reproduce.reading import CellResult, read_cells, read_rule, shown_cell, shown_number
from fedkeel.papers.reproduce.similarity import LABELS, Compared, compare_all

_SIDE_BY_SIDE = 4  # columns of a table whose setups have one each

Results = Mapping[JobKey, JobResult]


class ShownTable(NamedTuple):
    """A table as text: a row of the paper in each line, paper · ours · difference for each column."""

    title: str
    headings: list[str]
    rows: list[list[str]]


class Outcome(NamedTuple):
    """A plan that was carried out, wholly or in part."""

    plan: RecipePlan
    results: Results
    cells: dict[CellKey, CellResult]
    claims: list[JudgedClaim]

    @property
    def diverged(self) -> list[JobKey]:
        """The runs that diverged."""
        return [key for key, result in self.results.items() if result.problem is not None]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "recipe": self.plan.recipe.name,
            "title": self.plan.recipe.title,
            "reading": self.plan.recipe.reading,
            "scale": self.plan.scale_name,
            "note": self.plan.scale.note,
            "directory": str(self.plan.directory),
            "page": str(self.plan.directory / "page.html"),
            "cells": [cell.as_dict() for cell in self.cells.values()],
            "claims": [claim.as_dict() for claim in self.claims],
            "assumptions": list(self.plan.recipe.assumptions),
            "similarity": [one.as_dict() for one in similarity_of(self.plan)],
            "runs": [
                {
                    **job.key._asdict(),
                    "directory": str(job.directory),
                    "problem": self.results[job.key].problem,
                }
                for job in self.plan.jobs
                if job.key in self.results
            ],
        }


def conclude(plan: RecipePlan, results: Results) -> Outcome:
    """Read the cells off the results and judge the claims."""
    cells = read_cells(plan, results)
    claims = [judge(claim, plan.recipe, plan.scale, plan.columns, cells) for claim in plan.recipe.claims]
    return Outcome(plan, results, cells, claims)


def similarity_of(plan: RecipePlan) -> list[Compared]:
    """Return the similarity numbers of what a plan runs."""
    return [one for one in compare_all(plan.recipe, plan.scale, plan.rows) if one.setup in plan.setups]


SIMILARITY_HEADINGS = ["number", "setup", "rows", "paper", "here", "ratio"]


def similarity_rows(numbers: Iterable[Compared]) -> list[list[str]]:
    """Return similarity numbers as rows of text; a ratio beyond a factor of three is marked."""
    return [
        [
            LABELS[one.number],
            one.setup,
            ", ".join(one.rows),
            f"{one.paper:.3g}",
            f"{one.ours:.3g}",
            f"{one.ratio:.2g}×{'' if one.alike else ' (not alike)'}",
        ]
        for one in numbers
    ]


def shown_tables(outcome: Outcome) -> list[ShownTable]:
    """Return the paper's tables in parts that fit a terminal: by setup, or a few columns."""
    made = []
    run = {column.heading: column for column in outcome.plan.columns}
    for table in outcome.plan.recipe.tables:
        columns = [run[column.heading] for column in table.columns if column.heading in run]
        parts = [list(part) for _, part in groupby(columns, key=lambda column: column.setup)]
        if all(len(part) == 1 for part in parts):
            parts = [
                columns[start : start + _SIDE_BY_SIDE] for start in range(0, len(columns), _SIDE_BY_SIDE)
            ]
        made += [_shown_table(outcome, table.title, part) for part in parts]
    return made


def _shown_table(outcome: Outcome, title: str, columns: list[Column]) -> ShownTable:
    printed = any(
        (row, column.heading) in outcome.plan.recipe.printed
        for row in outcome.plan.rows
        for column in columns
    )
    setups = list(dict.fromkeys(column.setup for column in columns))
    setup = setups[0] if len(setups) == 1 else ""
    headings = [setup]
    for column in columns:
        changed = outcome.plan.scale.measures.get(column.heading)
        ours = ["ours", "diff"] if changed is None else [f"ours: {read_rule(changed).label}"]
        headings += [f"{column.heading}: paper", *ours] if printed else [column.heading]
    rows = []
    for row in outcome.plan.rows:
        cells = {column: outcome.cells.get(CellKey(row, column.heading)) for column in columns}
        if any(cell is not None for cell in cells.values()):
            texts = (_texts(cell, outcome, column, printed=printed) for column, cell in cells.items())
            rows.append([row, *(text for some in texts for text in some)])
    return ShownTable(title, headings, rows)


def _texts(cell: CellResult | None, outcome: Outcome, column: Column, *, printed: bool) -> list[str]:
    """Return a cell's texts: ours alone where nothing is printed, no difference where the rule is another."""
    ours = "—" if cell is None else shown_cell(cell)
    if not printed:
        return [ours]
    paper = "—" if cell is None or cell.printed is None else cell.printed.text
    if column.heading in outcome.plan.scale.measures:
        return [paper, ours]
    if cell is None or cell.difference is None:
        return [paper, ours, ""]
    return [paper, ours, shown_number(cell.difference, cell.rule, sign=True)]


def outcome_text(outcome: Outcome) -> str:
    """Return the tables and the claims as text."""
    plan, seeds = outcome.plan, outcome.plan.scale.seeds
    note = plan.scale.note.rstrip(".")
    lines = [f"{plan.recipe.name}: {plan.recipe.title}"]
    lines += [
        f"Reading {plan.recipe.reading}. Scale {plan.scale_name}: {note}; {seeds} seed{'s' * (seeds != 1)}"
    ]
    lines.append("")
    for table in shown_tables(outcome):
        lines += [*filter(None, [table.title]), as_lines(table.headings, table.rows), ""]
    for one in outcome.claims:
        lines.append(f"{one.finding}: {one.claim.text}")
        lines.append(f"    {one.why}; in the paper's numbers: {one.in_paper}")
    return "\n".join(lines)
