"""The page of a reproduced table or figure: claims, tables and curves in one HTML file without a script."""

from __future__ import annotations

import math
import statistics
from html import escape

from fedkeel.experiments import OUTCOME_FILE, OUTCOME_TEXT
from fedkeel.experiments.recipes.claims import CellKey
from fedkeel.experiments.recipes.recipe import Panel
from fedkeel.experiments.reproduce.judging import JudgedClaim
from fedkeel.experiments.reproduce.outcome import Outcome, outcome_text, shown_tables
from fedkeel.files import make_directory, storage_errors, write_durably
from fedkeel.jsonfiles import json_text, sealed
from fedkeel.report.charts import SMALL, ChartCurve, Drawing, draw_chart, line_chart
from fedkeel.report.style import html_page, html_table
from fedkeel.report.tables import curve

Points = list[tuple[float, float]]


def write_page(outcome: Outcome, command: str) -> None:
    """Write the page, and beside it the numbers as JSON and as text."""
    directory = outcome.plan.directory
    with storage_errors(directory):
        make_directory(directory)
        write_durably(directory / "page.html", make_recipe_page(outcome, command).encode())
        text = f"{outcome_text(outcome)}\n"
        numbers = sealed({**outcome.as_dict(), "text": text})
        write_durably(directory / OUTCOME_FILE, json_text(numbers, indent=2).encode())
        write_durably(directory / OUTCOME_TEXT, text.encode())


def make_recipe_page(outcome: Outcome, command: str) -> str:
    """Return the page: what is claimed and found, the numbers beside the paper's, curves, assumptions."""
    plan, recipe = outcome.plan, outcome.plan.recipe
    seeds = plan.scale.seeds
    body = f"""<p class="quiet">{escape(f"Scale {plan.scale_name}: {plan.scale.note}")}</p>
<p class="quiet">{seeds} seed{"s" * (seeds != 1)}; mean ± standard deviation. {escape(_left_out(outcome))}</p>
<h2>Claims</h2>
{_claims(outcome.claims)}
<h2>The paper's numbers and ours</h2>
{"".join(_table(title, headings, rows) for title, headings, rows in shown_tables(outcome))}
{_panels(outcome)}<h2>Assumptions</h2>
<ul>{"".join(f"<li>{escape(text)}</li>" for text in recipe.assumptions)}</ul>
<h2>Run it again</h2>
<pre>{escape(command)}</pre>"""
    return html_page(f"{recipe.name}: {recipe.title}", body)


def _claims(claims: list[JudgedClaim]) -> str:
    rows = [[one.claim.text, one.finding, one.in_paper] for one in claims]
    head = "".join(f"<th>{text}</th>" for text in ("claim", "in our runs", "in the paper's numbers"))
    lines = [
        f'<tr><td class="wide">{escape(text)}<br><span class="quiet">{escape(one.why)}</span></td>'
        f"<td>{escape(finding)}</td><td>{escape(in_paper)}</td></tr>"
        for one, (text, finding, in_paper) in zip(claims, rows, strict=True)
    ]
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


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


def _table(title: str, headings: list[str], rows: list[list[str]]) -> str:
    heading = f'<p class="quiet">{escape(title)}</p>' if title else ""
    return heading + html_table(headings, rows)


def _panels(outcome: Outcome) -> str:
    panels = outcome.plan.recipe.panels or _curves_of_tables(outcome)
    drawn = [drawing for panel in panels if (drawing := draw_panel(outcome, panel)) is not None]
    if not drawn:
        return ""
    return f'<h2>Curves</h2>\n<div class="charts">{"".join(one.inline() for one in drawn)}</div>\n'


def _curves_of_tables(outcome: Outcome) -> tuple[Panel, ...]:
    """Return the accuracy of each setup against the rounds: tables have no panels of their own."""
    return tuple(Panel(f"test accuracy, {name}", name, "accuracy") for name in outcome.plan.setups)


def draw_panel(outcome: Outcome, panel: Panel) -> Drawing | None:
    """Return a panel of a figure; None where nothing of it was run."""
    rows = [row for row in outcome.plan.rows if panel.rows is None or row in panel.rows]
    if panel.against == "rows":
        return _against_rows(outcome, panel, rows)
    series = {row: _mean_curve(outcome, panel, row) for row in rows}
    series = {row: points for row, points in series.items() if points}
    steps = getattr(outcome.plan.recipe.setups.get(panel.setup, None), "study", None)
    x = "local step" if getattr(steps, "along", "") == "steps" else "round"
    return line_chart(panel.title, series, x=x, log=panel.log) if series else None


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


def _against_rows(outcome: Outcome, panel: Panel, rows: list[str]) -> Drawing | None:
    points: Points = []
    band = []
    for row in rows:
        cell = outcome.cells.get(CellKey(row, panel.column))
        x = row_number(row)
        if cell is not None and cell.mean is not None and x is not None:
            points.append((x, cell.mean))
            band.append((x, min(cell.values), max(cell.values)))
    if not points:
        return None
    line = ChartCurve("ours", sorted(points), 0, band=sorted(band))
    return draw_chart([line], x=panel.title, y=panel.column, size=SMALL, log_y=panel.log)


def row_number(row: str) -> float | None:
    """Return the number in a row's name, as in `β = 0.1` or `0.99`; None where there is none.

    >>> row_number("β = 0.1")
    0.1
    """
    try:
        return float(row.rpartition("=")[2].strip().replace("−", "-"))
    except ValueError:
        return None
