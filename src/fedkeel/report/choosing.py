"""Which of several values is best, and by what it was chosen: validation data where there is some."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from fedkeel.common.columns import DECLARED, VALIDATION, KnownColumns
from fedkeel.report.measures import FINAL, Measure, MetricMeasure, parse_measure, rule_of
from fedkeel.report.tables import Trial, by_method, score, why_diverged

_OTHERWISE = "hold out validation data, as data.validation=0.1, in Python federation.with_validation(0.1)"


class ChosenValue(NamedTuple):
    """The value with the best mean score over its seeds; None where none is without a diverged seed.

    `column` is what was scored: `validation_accuracy`, or `accuracy` where no run has validation data.
    """

    value: str | None
    score: float | None
    column: str
    measure: str = str(FINAL)
    known: KnownColumns = DECLARED

    def __repr__(self) -> str:
        told = {name: value for name, value in self._asdict().items() if name != "known"}
        return f"ChosenValue({', '.join(f'{name}={value!r}' for name, value in told.items())})"

    @property
    def scored(self) -> Measure:
        """Return the measure by which it was chosen."""
        measure = parse_measure(self.measure, self.known)
        mode = "max" if measure.sign > 0 else "min"
        same = self.column == measure.metric
        return measure if same else MetricMeasure(rule_of(measure), self.column, mode, measure.known)

    @property
    def note(self) -> str:
        """Say by what it was chosen, and what to do where that was the test set."""
        if self.value is None or self.score is None:
            return f"nothing is best: no value was evaluated on every seed; {_OTHERWISE}"
        measure = parse_measure(self.measure, self.known)
        shown = measure.shown(self.score)
        if measure.is_diagnostic:
            return f"selected by its {measure.label}: {shown}"
        if self.column.startswith(VALIDATION):
            return f"selected on validation data: mean {measure.metric} {shown}"
        return f"selected on the test set, whose mean {measure.metric} of {shown} then flatters: {_OTHERWISE}"


def choose(trials: Sequence[Trial], measure: Measure = FINAL) -> ChosenValue:
    """Return the best value of a sweep."""
    column = f"{VALIDATION}{measure.metric}"
    held_out = any(column in row for trial in trials for row in trial.rows[:1])
    prefix = VALIDATION if held_out else ""
    means: dict[str, float] = {}
    for value, group in by_method(trials).items():
        scores = [score(trial, measure, prefix=prefix) for trial in group]
        found = [one for one in scores if one is not None]
        if found and not any(map(why_diverged, group)):  # none is best by the seeds that survived
            means[value] = statistics.fmean(found)
    best = max(means, key=lambda value: measure.sign * means[value], default=None)
    chosen = None if best is None else means[best]
    return ChosenValue(best, chosen, f"{prefix}{measure.metric}", str(measure), measure.known)
