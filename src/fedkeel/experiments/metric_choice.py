"""What runs made in Python are scored by: a measure of a metric that their histories have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedkeel.common.columns import VALIDATION, KnownColumns
from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.report import Trial, parse_measure
from fedkeel.report.measures import plain_measure, split_measure
from fedkeel.report.table_columns import COLUMNS, measure_columns, parse_columns
from fedkeel.running.round import Row
from fedkeel.running.selection import Selection

_DEFAULTS = ("accuracy", "loss")


class MetricChoice(NamedTuple):
    """Which metric runs are scored by, the measure of it, and the columns of the table."""

    measure: str
    selection: Selection
    columns: tuple[str, ...] = COLUMNS

    @classmethod
    def of(
        cls, measure: str, metric: str | None, mode: str | None, columns: str | Iterable[str]
    ) -> MetricChoice:
        """Check what was asked for, before the first run."""
        _, column, _ = split_measure(measure)
        if column is not None and metric is not None:
            raise ConfigError(
                f"measure = {measure!r} and metric = {metric!r}: both name a column: leave one out"
            )
        return cls(plain_measure(measure), Selection(metric, mode), parse_columns(columns))

    def check(self, rows: Sequence[Row], known: KnownColumns) -> None:
        """Refuse a metric that a run does not have, and one of which nobody says what is better."""
        metric, names = self.selection.metric, {name for row in rows for name in row}
        if metric is not None and rows and metric not in names:
            raise ConfigError(
                f"metric = {metric!r}: the history has no such column; {did_you_mean(metric, names)}"
            )
        check_columns([self.measure, *self.columns], rows)
        if rows:
            parse_measure(self.measure, known)

    def text(self, trials: Sequence[Trial], known: KnownColumns) -> str:
        """Return the measure with its metric; by default the accuracy, or the loss of tasks without one.

        Where no run has ended nobody may know what is better: then it is as it was asked for.
        """
        metric, mode = self.selection.metric, self.selection.direction
        _, column, direction = split_measure(self.measure)
        if column is not None:
            asked = direction is not None or not trials
            return self.measure if asked else str(parse_measure(self.measure, known))
        if metric is None:
            held = {name for trial in trials for row in trial.rows for name in row if row[name] is not None}
            there = [name for name in _DEFAULTS if held & {name, f"{VALIDATION}{name}"}]
            metric, mode = there[0] if there else "accuracy", "min"
        return self.measure if metric == "accuracy" else f"{self.measure} of {metric} ({mode})"


def check_columns(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse measures of columns that a history does not have."""
    names = {name for row in rows for name in row}
    for text in measure_columns(columns) if names else ():
        column = split_measure(text)[1]
        if column is not None and column not in names:
            raise ConfigError(f"{text}: the history has no column {column!r}; {did_you_mean(column, names)}")
