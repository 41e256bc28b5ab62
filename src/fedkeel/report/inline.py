"""A comparison in a notebook's cell: a table, and its curves as a picture of a few kilobytes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from html import escape

from fedkeel.common.picture import inline_lines
from fedkeel.report.tables import Trial, by_method, curve, models_of


def inline_chart(trials: Sequence[Trial], metric: str = "accuracy") -> str:
    """Return the means over seeds with their bands as an image; nothing where no round was evaluated."""
    lines, bands = {}, {}
    for method, group in by_method(trials).items():
        for model in models_of(group, metric):
            by_round = [dict(curve(trial.rows, model, metric)) for trial in group]
            shared = sorted(set(by_round[0]).intersection(*by_round[1:]))
            name = method if model == "x" else f"{method} ({model})"
            values = {round: [one[round] for one in by_round] for round in shared}
            if not values:
                continue
            lines[name] = [(round, statistics.fmean(found)) for round, found in values.items()]
            if model == "x" and len(group) > 1:
                bands[name] = [(round, min(found), max(found)) for round, found in values.items()]
    return inline_lines(metric, lines, bands) if lines else ""


def inline_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return texts as a plain HTML table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
