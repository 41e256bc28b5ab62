"""Runs on a page: their columns as compact lists, thinned out where there is too much of them.

A page holds some ninety thousand numbers, six digits each, so that its data stays below a megabyte however
long the runs are. `fedkeel export` writes every number of every round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Literal, NamedTuple

from fedkeel.common.columns import HistoryColumn, KnownColumns, columns_in
from fedkeel.report.page.document import ColumnLabel, Number, RunColumn, RunCurves
from fedkeel.report.tables import UNFINISHED, Trial, why_diverged

MOST_NUMBERS = 90_000  # on a page
_FEWEST = 50  # points of a column that is thinned out


class ReportedRun(NamedTuple):
    """A run as a page shows it: its trial, and what is known of it beside its rows.

    `settings` are those of its experiment, as `work.lr`; `clients` has its last model client by client;
    `columns` is what its probes declare, where its manifest does not say it.
    """

    trial: Trial
    manifest: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    clients: Sequence[Mapping[str, Any]] = ()
    directory: str | None = None
    command: str | None = None
    columns: Sequence[HistoryColumn] = ()

    @property
    def name(self) -> str:
        """Its method (or value) and seed."""
        return f"{self.trial.label}, seed {self.trial.seed}"


class PageRuns(NamedTuple):
    """The runs of a page, how their columns are written, and whether of some not every round is shown."""

    curves: tuple[RunCurves, ...]
    labels: dict[str, ColumnLabel]
    thinned: bool
    known: KnownColumns

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns that a run has, in the order of the rows."""
        return list(self.labels)


def page_runs(runs: Sequence[ReportedRun], most: int = MOST_NUMBERS) -> PageRuns:
    """Return the runs as a page holds them."""
    known = known_of(runs)
    columns = [_columns_of(run.trial.rows, known) for run in runs]
    names = list(dict.fromkeys(chain.from_iterable(columns)))
    points = max(_FEWEST, most // max(1, sum(len(own) + 3 for own in columns)))
    curves = tuple(
        _curves(index, run, own, points) for index, (run, own) in enumerate(zip(runs, columns, strict=True))
    )
    thinned = any(len(run.trial.rows) > points for run in runs)
    return PageRuns(curves, {name: column_label(name, known) for name in names}, thinned, known)


def known_of(runs: Sequence[ReportedRun]) -> KnownColumns:
    """Return what is declared of the columns of these runs."""
    return KnownColumns(column for run in runs for column in (*columns_in(run.manifest), *run.columns))


def column_label(name: str, known: KnownColumns) -> ColumnLabel:
    """Return how a column is written."""
    found = known.describe(name)
    return ColumnLabel(label=found.label, about=found.about, percent=found.percent, log=found.log)


def column(points: Sequence[tuple[int, Number | None]], most: int) -> RunColumn:
    """Return (round, value) pairs as a column with about that many of them, the last always among them."""
    step = max(1, math.ceil(len(points) / most))
    kept = points[::-1][::step][::-1]  # from the end, so that the last one stays and the steps are even
    rounds, values = [round for round, _ in kept], tuple(short(value) for _, value in kept)
    gaps = {b - a for a, b in pairwise(rounds)}
    if len(gaps) <= 1 and rounds:
        return RunColumn(first=rounds[0], step=gaps.pop() if gaps else 1, values=values)
    return RunColumn(rounds=tuple(rounds), values=values)


def short(value: Number | None) -> Number | None:
    """Return a number with six digits; whole ones keep all of theirs, and what is no number becomes None."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def state_of(trial: Trial) -> Literal["finished", "unfinished", "diverged"]:
    """Return how a run stands."""
    if why_diverged(trial) is not None:
        return "diverged"
    return "unfinished" if trial.problem == UNFINISHED else "finished"


def has_curve(name: str, known: KnownColumns) -> bool:
    """Tell whether a column is worth a curve; costs stand in tables."""
    return known.describe(name).panel != "none"


def _columns_of(rows: Sequence[Mapping[str, Any]], known: KnownColumns) -> list[str]:
    """Return the columns that have a number somewhere and are worth a curve."""
    names = dict.fromkeys(
        name for row in (*rows[:1], *rows[-1:], *rows[:: max(1, len(rows) // 20)]) for name in row
    )
    return [
        name
        for name in names
        if has_curve(name, known)
        and any(_is_number(row.get(name)) for row in rows)
        and not (name == "lr" and len({row.get(name) for row in rows}) == 1)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _curves(index: int, run: ReportedRun, names: Sequence[str], most: int) -> RunCurves:
    rows, trial = run.trial.rows, run.trial
    columns = {
        name: column([(row["round"] + 1, row[name]) for row in rows if _is_number(row.get(name))], most)
        for name in names
    }
    totals = {
        "bytes": _totals(row["bytes_down"] + row["bytes_up"] for row in rows),
        "gradients": _totals(row.get("gradients") or 0 for row in rows),
        "seconds": [round(value, 3) for value in _totals(row.get("seconds") or 0.0 for row in rows)],
    }
    axes = {
        name: column([(row["round"] + 1, total) for row, total in zip(rows, found, strict=True)], most)
        for name, found in totals.items()
        if any(found)
    }
    return RunCurves(
        id=run.directory or f"{index}",
        method=trial.label,
        seed=trial.seed,
        state=state_of(trial),
        problem=why_diverged(trial) or trial.problem,
        directory=run.directory,
        done=len(rows),
        planned=run.manifest.get("rounds"),
        columns=columns,
        axes=axes,
    )


def _totals(values: Iterable[Number]) -> list[Number]:
    return list(accumulate(values))
