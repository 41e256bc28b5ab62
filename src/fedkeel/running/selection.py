"""Which round is the best one, by a column of the history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedkeel.common.columns import RUN_COLUMNS, VALIDATION
from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.common.frozen import frozen
from fedkeel.running.round import RunContext
from fedkeel.settings.run_settings import RunSettings

_MODES = {"accuracy": "max", "loss": "min", "train_loss": "min", "mse": "min", "mae": "min", "r2": "max"}

ON_TEST_SET = (
    "selected on the test set, whose scores then flatter: hold out validation data, as "
    "federation.with_validation(0.1), in a file data.validation=0.1"
)


class RunColumns(NamedTuple):
    """The columns that the history of a run will have.

    `scores` are the loss and the metrics of its models; `others` are of the run itself and of its probes.
    `source` says what selections by a score go by: "validation", "test", "clients" or "nothing".
    """

    scores: tuple[str, ...]
    others: tuple[str, ...]
    source: str


@frozen
class Selection:
    """A column of the history and whether more of it is better ("max") or less ("min").

    Without a metric it is the accuracy of the evaluation there is, or its loss where the task has none. Where
    there is validation data, a loss or metric is that of validation, never that of the test set.
    """

    metric: str | None = None
    mode: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in (None, "min", "max"):
            raise ConfigError(f"mode = {self.mode!r}: give 'max' where more is better, else 'min'")
        if self.mode is None and self.metric is not None and self._usual is None:
            raise ConfigError(
                f"metric = {self.metric!r}: say which is better: mode='max' where more is, else mode='min'"
            )
        if self.metric is None and self.mode is not None:
            raise ConfigError(f"mode = {self.mode!r} without a metric: name the column, as in metric='loss'")

    @property
    def _usual(self) -> str | None:
        """Return the mode of a well-known column."""
        return None if self.metric is None else _usual_mode(self.metric)

    @property
    def direction(self) -> str | None:
        """Return the mode: the one given, or that of a well-known column."""
        return self.mode or self._usual

    def column(self, row: Mapping[str, Any]) -> str:
        """Return the column that counts."""
        prefix = VALIDATION if f"{VALIDATION}loss" in row else ""
        if self.metric is None:
            return f"{prefix}loss" if row.get(f"{prefix}accuracy") is None else f"{prefix}accuracy"
        held_out = f"{VALIDATION}{self.metric}"
        return held_out if held_out in row else self.metric

    def score(self, row: Mapping[str, Any]) -> float | None:
        """Return how good a round is, more being better; None where the row does not say."""
        value = row.get(self.column(row))
        if value is None:
            return None
        if not isinstance(value, int | float):
            raise ConfigError(f"metric = {self.metric!r}: that column holds no number: {value!r}")
        if not math.isfinite(value):
            return None
        mode = self.mode or _usual_mode(self.column(row))
        return float(value) if mode == "max" else -float(value)

    def check(self, columns: RunColumns) -> None:
        """Refuse a column that the history will not have, or that will hold nothing."""
        metric = self.metric
        plain = None if metric is None else metric.removeprefix(VALIDATION)
        if columns.source == "nothing" and (metric is None or plain in columns.scores):
            raise ConfigError(
                f"metric = {metric or 'accuracy'!r}: this run evaluates nothing: hold out validation data "
                "(federation.with_validation(0.1)), or take evaluate_on='clients', or metric='train_loss'"
            )
        if metric != plain and plain in columns.scores:
            if columns.source == "validation":
                return
            raise ConfigError(
                f"metric = {metric!r}: there is no validation data: hold some out, as "
                "federation.with_validation(0.1), in a file data.validation = 0.1"
            )
        if metric == "cohort":
            raise ConfigError("metric = 'cohort': that column holds no number: choose another")
        known = [*columns.scores, *columns.others]
        if metric is not None and metric not in known:
            raise ConfigError(
                f"metric = {metric!r}: the history has no such column; {did_you_mean(metric, known)}"
            )


def columns_of(context: RunContext) -> RunColumns:
    """Return the columns that the history of a run will have."""
    settings, x = context.settings, context.oracle.point
    methods = [part.method for part in context.stages.parts]
    models = dict.fromkeys(name for one in methods for name in list(one.models(one.init(x)))[1:])
    plain = ["loss", *settings.task.metrics]
    scores = [*plain, *(f"{score}/{model}" for model in models for score in plain)]
    probes = [name for probe in context.panel.probes for name in probe.names(context.oracle.layout)]
    others = [name for name in (*RUN_COLUMNS, *probes) if name not in ("loss", "cohort")]
    source = settings.evaluated_on if settings.federation.validation is None else "validation"
    return RunColumns(tuple(scores), tuple(others), source)


def warning_of(selections: Sequence[Selection], columns: RunColumns) -> str | None:
    """Return what a user should know who selects by these: that it is done on the test set; else None."""
    by_score = any(one.metric is None or one.metric in columns.scores for one in selections)
    return ON_TEST_SET if by_score and columns.source == "test" else None


def source_of(column: str, settings: RunSettings) -> str | None:
    """Return what a column is evaluated on: "validation", "test" or "clients"; None where on none of them."""
    if column.startswith(VALIDATION):
        return "validation"
    is_score = column.partition("/")[0] in ("loss", *settings.task.metrics)
    return settings.evaluated_on if is_score else None


def _usual_mode(column: str) -> str | None:
    """Return the mode of a well-known column; `validation_accuracy` and `accuracy/gamma` are accuracies."""
    return _MODES.get(column.removeprefix(VALIDATION).partition("/")[0])
