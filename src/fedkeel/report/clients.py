"""How methods serve each client: a distribution over clients, and those who fare worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from fedkeel.client_table import ClientRow, ClientTable
from fedkeel.columns import shown_value
from fedkeel.report.charts import ChartCurve, draw_chart, legend
from fedkeel.report.style import html_table

_POINTS = 100  # of a curve
_WORST = 5  # clients of a method that are listed


def clients_section(clients: Mapping[str, Sequence[ClientRow]]) -> str:
    """Return the part of a page on clients, of each method's rows from all its runs; nothing without rows."""
    tables = {method: ClientTable(rows) for method, rows in clients.items() if rows}
    if not tables:
        return ""
    first = next(iter(tables.values()))
    accurate = first.score == "accuracy"
    curves = [ChartCurve(name, _sorted(table), colour) for colour, (name, table) in enumerate(tables.items())]
    axis = "share of clients, the worst first, %"
    chart = draw_chart(curves, x=axis, y=first.score, span_x=[0, 100], percent=accurate).inline()
    return f"""<h2>Client by client</h2>
<p class="quiet">{escape(_told(tables))}</p>
{legend(curves)}
{chart}
{html_table(["method", *first.distribution], _spreads(tables))}
<h3>Who fares worst</h3>
{html_table(["method", *first.headings], _worst(tables))}
"""


def _told(tables: Mapping[str, ClientTable]) -> str:
    """Say what the numbers are of; clients of several seeds count as several."""
    titles = dict.fromkeys(table.title for table in tables.values())
    return f"The last model of every run: {'; '.join(titles)}. Clients of all seeds are counted."


def _sorted(table: ClientTable) -> list[tuple[float, float]]:
    values, last = [float(row[table.score]) for row in table.worst_first], len(table.rows) - 1
    places = [step / (_POINTS - 1) for step in range(_POINTS)] if last >= _POINTS else None
    shares = places or [index / max(1, last) for index in range(last + 1)]
    return [(100 * share, values[round(share * last)]) for share in shares]


def _spreads(tables: Mapping[str, ClientTable]) -> list[list[str]]:
    return [
        [method, *(shown_value(table.score, value) for value in table.distribution.values())]
        for method, table in tables.items()
    ]


def _worst(tables: Mapping[str, ClientTable]) -> list[list[str]]:
    return [
        [method, *cells]
        for method, table in tables.items()
        for cells in table.cells(table.worst_first[:_WORST])
    ]
