"""Which round is the best one, by a column of the history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedkeel.columns import RUN_COLUMNS
from fedkeel.errors import ConfigError, did_you_mean
from fedkeel.running.round import RunContext

_MODES = {"accuracy": "max", "loss": "min", "train_loss": "min", "mse": "min", "mae": "min", "r2": "max"}


class RunColumns(NamedTuple):
    """The columns that the history of a run will have.

    `scores` are the loss and the metrics of its models, which are None throughout where nothing is
    `evaluated`; `others` are of the run itself and of its probes.
    """

    scores: tuple[str, ...]
    others: tuple[str, ...]
    evaluated: bool


@dataclass(frozen=True)
class Selection:
    """A column of the history and whether more of it is better ("max") or less ("min").

    Without a metric it is the accuracy of the evaluation there is, or its loss where the task has none.
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
        """Return the mode of a well-known column; `accuracy/gamma` is an accuracy too."""
        return None if self.metric is None else _MODES.get(self.metric.partition("/")[0])

    def column(self, row: Mapping[str, Any]) -> str:
        """Return the column that counts."""
        if self.metric is not None:
            return self.metric
        return "loss" if row.get("accuracy") is None else "accuracy"

    def score(self, row: Mapping[str, Any]) -> float | None:
        """Return how good a round is, more being better; None where the row does not say."""
        value = row.get(self.column(row))
        if value is None:
            return None
        if not isinstance(value, int | float):
            raise ConfigError(f"metric = {self.metric!r}: that column holds no number: {value!r}")
        if not math.isfinite(value):
            return None
        mode = self.mode or self._usual or _MODES[self.column(row)]
        return float(value) if mode == "max" else -float(value)

    def check(self, columns: RunColumns) -> None:
        """Refuse a column that the history will not have, or that will hold nothing."""
        metric = self.metric
        if not columns.evaluated and (metric is None or metric in columns.scores):
            raise ConfigError(
                f"metric = {metric or 'accuracy'!r}: this run evaluates nothing: give the federation a test "
                "set, or take evaluate_on='clients', or metric='train_loss'"
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
    return RunColumns(tuple(scores), tuple(others), settings.evaluated_on != "nothing")
