"""The panel on clients: the label picture of the split, visits, accuracy per client, who fares worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fedkeel.common.client_table import ClientTable
from fedkeel.common.columns import KnownColumns, is_accuracy, shown_value
from fedkeel.report.page.diagnostics import panel_columns
from fedkeel.report.page.document import (
    Axis,
    Block,
    Chart,
    LabelGrid,
    Section,
    Series,
    SmallCurves,
    Table,
    Text,
)
from fedkeel.report.page.runs import ReportedRun, short

_POINTS = 100  # of a curve over clients
_WORST = 5  # clients of a method that are listed
_EACH = 150  # clients; of more, visits are counted by how often
_SKIPPED = 200  # lines of skipped clients


def clients_section(runs: Sequence[ReportedRun], columns: Sequence[str], known: KnownColumns) -> Section:
    """Return the panel."""
    blocks: list[Block] = [*_labels(runs), *_visits(runs)]
    tables = _client_tables(runs)
    if tables:
        blocks += _evaluated(tables)
    worst = tuple(panel_columns(columns, known, "clients"))
    if worst:
        blocks.append(SmallCurves(id="worst-curves", columns=worst))
    elif not tables:
        hint = "Not measured in these runs: `--probe clientaccuracy` adds the worst tenth of clients."
        blocks.append(Text(id="clients-more", paragraphs=(hint,)))
    blocks += _skipped(runs)
    return Section(
        id="clients",
        title="Clients",
        about="Who has which data, who took part, and how the last model serves each of them.",
        blocks=tuple(blocks),
    )


def label_grid(
    title: str, classes: Sequence[str], counts: Sequence[Sequence[int]], note: str = "", name: str = "labels"
) -> LabelGrid:
    """Return the label picture of clients 0, 1, 2, …"""
    return LabelGrid(
        id=name,
        title=title,
        classes=tuple(classes),
        clients=tuple(range(len(counts))),
        counts=tuple(tuple(map(int, row)) for row in counts),
        note=note,
    )


def _labels(runs: Sequence[ReportedRun]) -> Iterator[LabelGrid]:
    """Yield the label picture of the first run that has one; other seeds have other splits."""
    for run in runs:
        kept = run.manifest.get("label_counts")
        if not kept:
            continue
        counts = [[int(count) for count in line.split()] for line in kept["clients"]]
        data = run.manifest.get("data", {})
        clients = data.get("clients", len(counts))
        some = f"The first {len(counts)} of {clients} clients. " if clients > len(counts) else ""
        note = f"{some}A disc's area is the number of samples; the split of seed {run.trial.seed}."
        title = f"Labels: {data.get('splitter', 'given split')}"
        yield label_grid(title, kept["classes"], counts, note)
        return


def _visits(runs: Sequence[ReportedRun]) -> Iterator[Chart]:
    """Yield in how many rounds each client of the first run took part; of many, how many did how often."""
    run = next((run for run in runs if any(row.get("cohort") for row in run.trial.rows)), None)
    if run is None:
        return
    seen = Counter(client for row in run.trial.rows for client in row.get("cohort") or ())
    clients = run.manifest.get("data", {}).get("clients", max(seen) + 1)
    visits = [seen[client] for client in range(clients)]
    title, note = "Visits", f"Of {run.name}; {len(run.trial.rows)} rounds."
    if len({one.trial.label for one in runs}) > 1:
        note += " All methods draw the same cohorts."
    if clients <= _EACH:
        series = Series(name="rounds", x=tuple(range(clients)), y=tuple(visits), kind="bars")
        x, y = Axis(label="client"), Axis(label="rounds that it took part in")
    else:
        times = Counter(visits)
        most = max(times)
        counted = tuple(times[count] for count in range(most + 1))
        series = Series(name="clients", x=tuple(range(most + 1)), y=counted, kind="bars")
        x, y = Axis(label="rounds that a client took part in"), Axis(label="clients")
    yield Chart(id="visits", title=title, x=x, y=y, series=(series,), note=note)


def _client_tables(runs: Sequence[ReportedRun]) -> dict[str, ClientTable]:
    """Return each method's rows client by client, of all its seeds."""
    rows: dict[str, list[Mapping[str, object]]] = {}
    for run in runs:
        if run.clients:
            rows.setdefault(run.trial.label, []).extend(run.clients)
    return {method: ClientTable(found) for method, found in rows.items()}


def _evaluated(tables: Mapping[str, ClientTable]) -> Iterator[Block]:
    first = next(iter(tables.values()))
    titles = "; ".join(dict.fromkeys(table.title for table in tables.values()))
    told = f"The last model of every run: {titles}. Clients of all seeds are counted."
    yield Chart(
        id="per-client",
        title=f"Client by client: {first.score}",
        x=Axis(label="share of clients, the worst first, %"),
        y=Axis(label=first.score, percent=is_accuracy(first.score)),
        series=tuple(
            Series(name=name, x=x, y=y, colour=index)
            for index, (name, table) in enumerate(tables.items())
            for x, y in [_sorted(table)]
        ),
        note=told,
        wide=True,
    )
    spread = tuple(
        (method, *(shown_value(table.score, value) for value in table.distribution.values()))
        for method, table in tables.items()
    )
    headings = ("method", *first.distribution)
    yield Table(id="client-spread", title="Spread over clients", headings=headings, rows=spread)
    yield Table(
        id="worst-clients",
        title="Who fares worst",
        headings=("method", *(name.replace("_", " ") for name in first.headings)),
        rows=tuple(
            (method, *cells)
            for method, table in tables.items()
            for cells in table.cells(table.worst_first[:_WORST])
        ),
    )


def _sorted(table: ClientTable) -> tuple[tuple[float | int | None, ...], tuple[float | int | None, ...]]:
    values, last = [float(row[table.score]) for row in table.worst_first], len(table.rows) - 1
    count = min(_POINTS, last + 1)
    shares = [index / max(1, count - 1) for index in range(count)]
    return tuple(short(100 * share) for share in shares), tuple(
        short(values[round(share * last)]) for share in shares
    )


def _skipped(runs: Sequence[ReportedRun]) -> Iterator[Block]:
    """Yield which clients were skipped in which round and why, if any."""
    found = [
        (run.trial.label, f"{run.trial.seed}", f"{row['round'] + 1}", f"{one['client']}", str(one["reason"]))
        for run in runs
        for row in run.trial.rows
        for one in row.get("skipped") or ()
    ]
    if not found:
        return
    note = f"The first {_SKIPPED} of {len(found)}." if len(found) > _SKIPPED else ""
    yield Table(
        id="skipped",
        title=f"Skipped clients: {len(found)}",
        headings=("method", "seed", "round", "client", "why"),
        rows=tuple(found[:_SKIPPED]),
        left=(0, 4),
        wide=(4,),
        note=note,
    )
