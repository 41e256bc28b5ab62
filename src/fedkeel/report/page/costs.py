"""The panel on costs: what a round and a run took, per method."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedkeel.report.page.document import Axis, Chart, Section, Series, Table
from fedkeel.report.page.runs import ReportedRun, short
from fedkeel.report.tables import Trial, by_method
from fedkeel.report.target_costs import shown_bytes, shown_seconds, total_cost

_RELATIVE = ("bytes", "gradients", "seconds")


def costs_section(runs: Sequence[ReportedRun], subject: str) -> Section:
    """Return the panel: bytes, gradients, seconds per round, memory, and the runs' totals side by side."""
    groups = {name: group for name, group in by_method([run.trial for run in runs]).items() if _rows(group)}
    rows = tuple(_line(name, group) for name, group in groups.items())
    table = Table(
        id="costs-table",
        title="What a round takes",
        headings=(
            subject,
            "down per round",
            "up per round",
            "gradient steps per round",
            "seconds per round",
            "client keeps",
            "server keeps",
            "sent in all",
        ),
        rows=rows,
        note="Means over rounds and seeds; bytes are those of all clients of a round, counted from the "
        "tensors that cross the wire. Seconds depend on the machine.",
    )
    blocks = (table, _chart(groups)) if len(groups) > 1 else (table,)
    return Section(
        id="costs", title="Costs", about="What the methods ask of network, clients and server.", blocks=blocks
    )


def _rows(group: Sequence[Trial]) -> bool:
    return any(trial.rows for trial in group)


def _line(name: str, group: Sequence[Trial]) -> tuple[str, ...]:
    rows = [row for trial in group for row in trial.rows]

    def mean(column: str) -> float:
        return statistics.fmean(row.get(column) or 0 for row in rows)

    def most(column: str) -> str:
        known = [row[column] for row in rows if row.get(column) is not None]
        return shown_bytes(max(known)) if known else "—"

    sent = statistics.fmean(total_cost(trial.rows).bytes for trial in group)
    return (
        name,
        shown_bytes(mean("bytes_down")),
        shown_bytes(mean("bytes_up")),
        f"{mean('gradients'):,.0f}",
        f"{mean('seconds'):.3g}",
        most("costs/client_memory"),
        most("costs/server_memory"),
        shown_bytes(sent),
    )


def _chart(groups: dict[str, list[Trial]]) -> Chart:
    """Return bytes, gradients and seconds of all runs as multiples of the first method's."""
    names = tuple(groups)
    totals = {
        name: [
            statistics.fmean(getattr(total_cost(trial.rows), cost) for trial in group) for cost in _RELATIVE
        ]
        for name, group in groups.items()
    }
    first = totals[names[0]]
    series = tuple(
        Series(
            name=cost,
            x=names,
            y=tuple(short(totals[name][index] / first[index]) if first[index] else None for name in names),
            kind="bars",
        )
        for index, cost in enumerate(_RELATIVE)
    )
    seconds = shown_seconds(first[_RELATIVE.index("seconds")])
    note = f"A run of {names[0]} sent {shown_bytes(first[0])} and took {seconds} seconds."
    y = Axis(label=f"multiple of {names[0]}")
    return Chart(id="costs-chart", title="Totals of a run", x=Axis(label=""), y=y, series=series, note=note)
