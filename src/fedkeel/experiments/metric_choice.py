"""What runs made in Python are scored by: a measure of a metric that their histories have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedkeel.common.columns import VALIDATION
from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.report import Trial, parse_measure
from fedkeel.report.measures import MetricMeasure
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
        read = parse_measure(measure)
        if isinstance(read, MetricMeasure) and metric is not None:
            raise ConfigError(
                f"measure = {measure!r} and metric = {metric!r}: both name a column: leave one out"
            )
        return cls(str(read), Selection(metric, mode), parse_columns(columns))

    def check(self, rows: Sequence[Row]) -> None:
        """Refuse a metric that a run does not have."""
        metric, names = self.selection.metric, {name for row in rows for name in row}
        if metric is not None and rows and metric not in names:
            raise ConfigError(
                f"metric = {metric!r}: the history has no such column; {did_you_mean(metric, names)}"
            )
        check_columns([self.measure, *self.columns], rows)

    def text(self, trials: Sequence[Trial]) -> str:
        """Return the measure with its metric; by default the accuracy, or the loss of tasks without one."""
        metric, mode = self.selection.metric, self.selection.direction
        if isinstance(parse_measure(self.measure), MetricMeasure):
            return self.measure
        if metric is None:
            held = {name for trial in trials for row in trial.rows for name in row if row[name] is not None}
            known = [name for name in _DEFAULTS if held & {name, f"{VALIDATION}{name}"}]
            metric, mode = known[0] if known else "accuracy", "min"
        return self.measure if metric == "accuracy" else f"{self.measure} of {metric} ({mode})"


def check_columns(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse measures of columns that a history does not have."""
    names = {name for row in rows for name in row}
    for text in measure_columns(columns) if names else ():
        column = parse_measure(text).metric
        if column != "accuracy" and column not in names:
            raise ConfigError(f"{text}: the history has no column {column!r}; {did_you_mean(column, names)}")
