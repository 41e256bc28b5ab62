"""Reads the numbers of a table off runs, by the paper's own rules."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedkeel.common.errors import ConfigError
from fedkeel.papers.recipes.claims import CellKey
from fedkeel.papers.recipes.printed import Printed
from fedkeel.papers.recipes.recipe import Column
from fedkeel.papers.reproduce.jobs import JobResult
from fedkeel.papers.reproduce.plan import JobKey, RecipePlan
from fedkeel.report.measures import Measure, parse_measure
from fedkeel.report.tables import Trial, cost_to, curve, why_diverged
from fedkeel.report.target_costs import total_cost

_COSTS = ("rounds", "bytes", "gradients", "seconds")
_TO = "_to:"


class Score(NamedTuple):
    """A number as the table shows it; `beyond`: the truth lies above it, as a target was not reached.

    A run that diverged has no number, and is worse than any.
    """

    value: float | None
    beyond: bool = False

    @property
    def diverged(self) -> bool:
        """Tell whether the run diverged."""
        return self.value is None


class Rule(NamedTuple):
    """A column's rule: a measure of the history, the cost of a target, or the seconds per round."""

    text: str
    measure: Measure | None
    cost: str | None = None
    target: float | None = None

    @property
    def sign(self) -> int:
        """1 where more is better, else -1."""
        return self.measure.sign if self.measure is not None else -1

    @property
    def percent(self) -> bool:
        """Tell whether numbers are shown in per cent."""
        return self.measure is not None and "accuracy" in re.split("[/_]", self.measure.metric)

    @property
    def label(self) -> str:
        """The rule in words."""
        if self.measure is not None:
            return self.measure.label
        if self.target is None:
            return "seconds per round"
        words = "gradient steps" if self.cost == "gradients" else self.cost
        return f"{words} to {100 * self.target:g} %"

    def score(self, result: JobResult) -> Score | None:
        """Return a run's number; None where it was never evaluated."""
        if self.measure is None and self.target is None:
            times = [row["seconds"] for row in result.rows if row.get("seconds")]
            return Score(statistics.median(times)) if times else None
        trial = Trial("", 0, result.rows, result.problem)
        if why_diverged(trial) is not None:
            return Score(None)
        if self.measure is not None:
            points = curve(result.rows, metric=self.measure.metric)
            factor = 100.0 if self.percent else 1.0
            return Score(factor * self.measure.score(points)) if self.measure.covers(points) else None
        if not curve(result.rows):
            return None
        reached = cost_to(result.rows, self.target)
        found = reached or total_cost(result.rows)
        return Score(float(getattr(found, self.cost or "")), reached is None)


def read_rule(text: str) -> Rule:
    """Read a column's rule: a measure, `rounds_to:0.75` and its like, or `seconds`."""
    if text == "seconds":
        return Rule(text, None, "seconds")
    cost, to, target = text.partition(_TO)
    if not to:
        return Rule(text, parse_measure(text))
    if cost not in _COSTS or not 0 < float(target) <= 1:
        raise ConfigError(f"{text!r}: write {_TO.join(('rounds', '0.75'))}, with one of {', '.join(_COSTS)}")
    return Rule(text, None, cost, float(target))


class CellResult(NamedTuple):
    """A cell: what the paper prints, our number by seed, and the rule; `missing` counts runs without one."""

    key: CellKey
    rule: Rule
    printed: Printed | None
    scores: Mapping[int, Score]
    missing: int

    @property
    def values(self) -> list[float]:
        """The numbers of the seeds that have one within the run."""
        found = [score.value for score in self.scores.values() if not score.beyond]
        return [value for value in found if value is not None]

    @property
    def mean(self) -> float | None:
        """The mean over the seeds; None where one diverged or did not reach its target."""
        values = self.values
        return statistics.fmean(values) if values and len(values) == len(self.scores) else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds."""
        known = self.mean is not None and math.isfinite(self.mean) and len(self.values) > 1
        return statistics.stdev(self.values) if known else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        if self.mean is None or self.printed is None or self.printed.value is None or self.printed.beyond:
            return None
        return self.mean - self.printed.value

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "row": self.key.row,
            "column": self.key.heading,
            "measure": self.rule.text,
            "paper": None if self.printed is None else self.printed._asdict(),
            "seeds": {str(seed): score._asdict() for seed, score in self.scores.items()},
            "mean": self.mean,
            "std": self.spread,
            "difference": self.difference,
        }


def read_cells(plan: RecipePlan, results: Mapping[JobKey, JobResult]) -> dict[CellKey, CellResult]:
    """Return every cell of the columns that were run; `results` are by setup, row and seed."""
    cells: dict[CellKey, CellResult] = {}
    printed = plan.recipe.printed
    for column in plan.columns:
        rule = read_rule(column.measure)
        rows = [row for row in plan.rows if row in plan.recipe.setups[column.setup].lines]
        scores = {row: _scores(rule, column.setup, row, results) for row in rows}
        asked = {
            row: sum(JobKey(column.setup, row, seed) in results for seed in range(plan.scale.seeds))
            for row in rows
        }
        if column.relative_to is not None:
            base = scores.get(column.relative_to, {})
            scores = {row: _relative(found, base, inverse=column.inverse) for row, found in scores.items()}
        for row in rows:
            key = CellKey(row, column.heading)
            missing = asked[row] - len(scores[row])
            cells[key] = CellResult(key, rule, printed.get(key), scores[row], missing)
    return cells


def oriented(column: Column) -> int:
    """Return 1 where a larger number of a column is better, else -1."""
    sign = read_rule(column.measure).sign
    return -sign if column.relative_to is not None and column.inverse else sign


def _scores(rule: Rule, setup: str, row: str, results: Mapping[JobKey, JobResult]) -> dict[int, Score]:
    found = {seed: rule.score(result) for (a, b, seed), result in results.items() if (a, b) == (setup, row)}
    return {seed: score for seed, score in found.items() if score is not None}


def _relative(scores: Mapping[int, Score], base: Mapping[int, Score], *, inverse: bool) -> dict[int, Score]:
    """Divide each seed's number by that of the base; what is not known on both sides is left out."""
    made = {}
    for seed, score in scores.items():
        other = base.get(seed, Score(None)).value
        if score.value and other and not score.beyond and not base[seed].beyond:
            made[seed] = Score(other / score.value if inverse else score.value / other)
    return made


def shown_number(value: float, rule: Rule, *, sign: bool = False) -> str:
    """Return a number of a column as text."""
    if not math.isfinite(value):
        return "unbounded"
    if rule.percent:
        text = f"{value:{'+' if sign else ''}.1f}"
    elif abs(value) >= 100:
        text = f"{value:{'+' if sign else ''},.0f}"
    else:
        text = f"{value:{'+' if sign else ''}.3g}"
    return text.replace("-", "−")


def _shown_spread(spread: float, rule: Rule) -> str:
    return f"{spread:.1f}" if rule.percent else f"{spread:,.0f}" if spread >= 10 else f"{spread:.2g}"


def shown_cell(cell: CellResult) -> str:
    """Return our number as text: mean ± std, 2000+ where the target was not reached, or what is missing."""
    total = len(cell.scores)
    if not total:
        return "—"
    if cell.mean is not None:
        spread = "" if cell.spread is None else f" ± {_shown_spread(cell.spread, cell.rule)}"
        return shown_number(cell.mean, cell.rule) + spread
    diverged = sum(score.diverged for score in cell.scores.values())
    if diverged:
        return f"diverged ({diverged} of {total})"
    ends = [score.value for score in cell.scores.values() if score.beyond and score.value is not None]
    if len(ends) == total:
        return f"{shown_number(max(ends), cell.rule).replace(',', '')}+"
    mean = statistics.fmean(cell.values)
    return f"{shown_number(mean, cell.rule)} ({len(cell.values)} of {total})"
