"""Which round is the best one, by a column of the history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedkeel.errors import ConfigError, did_you_mean

_MODES = {"accuracy": "max", "loss": "min", "train_loss": "min", "mse": "min", "mae": "min", "r2": "max"}


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
        self._check(row)
        value = row.get(self.column(row))
        if value is None or not math.isfinite(value):
            return None
        mode = self.mode or self._usual or _MODES[self.column(row)]
        return float(value) if mode == "max" else -float(value)

    def _check(self, row: Mapping[str, Any]) -> None:
        """Refuse a column that never holds a number."""
        metric, evaluated = self.metric, row.get("loss") is not None
        if metric is None or row.get(metric) is not None:
            if metric is not None and not isinstance(row[metric], int | float):
                raise ConfigError(f"metric = {metric!r}: that column holds no number: {row[metric]!r}")
            return
        unknown = metric not in row and (evaluated or "/" not in metric)
        if unknown or (metric == "accuracy" and evaluated):
            numbers = [name for name, value in row.items() if isinstance(value, float)]
            raise ConfigError(
                f"metric = {metric!r}: the history has no such column; {did_you_mean(metric, numbers)}"
            )
