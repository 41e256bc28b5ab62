"""Methods × seeds as a table: accuracies by a chosen measure, what it took to reach a target, and the time.

Nothing heavy is imported here: it reads rows of histories, wherever they come from.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedkeel.common.columns import DECLARED, KnownColumns, is_accuracy
from fedkeel.report.explosion import find_explosion
from fedkeel.report.measures import FINAL, Measure, parse_measure
from fedkeel.report.table_columns import COLUMNS, COST_COLUMNS, SCORE, SECONDS, heading, measure_columns
from fedkeel.report.target_costs import (
    CostSummary,
    TargetCost,
    shown_cost,
    shown_seconds,
    summarise_costs,
    total_cost,
)

HistoryRow = Mapping[str, Any]

UNFINISHED = "unfinished"  # the problem of a run that was stopped, or has not begun

_SELECTED_ON = {"test": "on the test set", "validation": "on validation data", "clients": "on all their data"}


class Trial(NamedTuple):
    """One of several runs; `problem` says why it has no last round: it diverged, or is `UNFINISHED`.

    `label` is what it is a run of, over seeds: a comparison's method, a sweep's value.
    """

    label: str
    seed: int
    rows: Sequence[HistoryRow]
    problem: str | None = None


class MethodSummary(NamedTuple):
    """A method or a value over its seeds. `model` is which model was evaluated: x, of FedDyn also gamma.

    `score` is the mean of the chosen `measure`, of the accuracy or of another metric, over the seeds that
    finished, `spread` their standard deviation (None for one seed); `others` has mean and spread of the
    further measures that were asked for. `failed` counts the seeds that diverged. `rounds`, `bytes`,
    `gradients` and `seconds_to_target` are means over the `reached` seeds that reached the target, and
    `spreads` has their standard deviations. `missed` seeds ended without it: `limits` has the least that any
    of them took. `seconds` is the mean time of a run.
    """

    label: str
    model: str
    seeds: int
    failed: int
    unfinished: int
    measure: str
    score: float | None
    spread: float | None
    others: dict[str, tuple[float | None, float | None]]
    reached: int
    rounds: float | None
    bytes: float | None
    seconds_to_target: float | None
    seconds: float
    gradients: float | None = None
    seconds_spread: float | None = None
    spreads: dict[str, float] | None = None
    missed: int = 0
    limits: dict[str, float] | None = None

    @property
    def title(self) -> str:
        """The label, and the model where it is not x."""
        return self.label if self.model == "x" else f"{self.label} ({self.model})"

    @property
    def costs(self) -> CostSummary:
        """What it took to reach the target, and what was taken in vain."""
        means = None
        if self.rounds is not None and self.bytes is not None and self.seconds_to_target is not None:
            means = {
                "rounds": self.rounds,
                "bytes": self.bytes,
                "seconds": self.seconds_to_target,
                "gradients": self.gradients or 0.0,
            }
        return CostSummary(self.reached, self.missed, means, self.spreads, self.limits)


def curve(rows: Iterable[HistoryRow], model: str = "x", metric: str = "accuracy") -> list[tuple[int, float]]:
    """Return (rounds done, accuracy) of every round with an evaluation."""
    column = metric if model == "x" else f"{metric}/{model}"
    return [(row["round"] + 1, row[column]) for row in rows if row.get(column) is not None]


def best_round(rows: Sequence[HistoryRow], told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the best round, from 1 on, with its accuracy and what it was selected on.

    `told` is what a run says of it when it ends; a run that has not ended is looked through, on its test set.
    """
    if told is not None:
        accuracy = rows[told["round"]].get("accuracy")
        on = told.get("selected_on")
        return {"round": told["round"] + 1, "accuracy": accuracy, "column": told["column"], "selected_on": on}
    found = max(curve(rows), key=lambda point: point[1], default=None)
    plain = {"column": "accuracy", "selected_on": "test"}
    return None if found is None else {"round": found[0], "accuracy": found[1], **plain}


def shown_best(best: Mapping[str, Any]) -> str:
    """Return the best round as text, with what it was selected on."""
    accuracy = "" if best["accuracy"] is None else f" {100 * best['accuracy']:.1f} %"
    chosen = _SELECTED_ON.get(best["selected_on"], f"by {best['column']}")
    return f"best{accuracy} after round {best['round']} (selected {chosen})"


def why_diverged(trial: Trial) -> str | None:
    """Return why a run counts as diverged: it was stopped for it, or its loss or norm has exploded."""
    stopped = trial.problem not in (None, UNFINISHED)
    return trial.problem if stopped else find_explosion(trial.rows)


def is_unfinished(trial: Trial) -> bool:
    """Tell whether a run has rounds left to play that are worth it."""
    return trial.problem == UNFINISHED and why_diverged(trial) is None


def score(trial: Trial, measure: Measure = FINAL, model: str = "x", prefix: str = "") -> float | None:
    """Return a run's score; None where it diverged, ended early or was never evaluated.

    `prefix` begins the column's name, as in `validation_accuracy`.
    """
    points = curve(trial.rows, model, f"{prefix}{measure.metric}")
    usable = measure.covers(points) and trial.problem is None and why_diverged(trial) is None
    return measure.score(points) if usable else None


def final(trial: Trial, model: str = "x") -> float | None:
    """Return the last accuracy of a run; None where it diverged, ended early or was never evaluated."""
    return score(trial, FINAL, model)


def by_method(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Group the runs by their label, in the order they come."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.label, []).append(trial)
    return groups


def models_of(trials: Sequence[Trial], metric: str = "accuracy") -> list[str]:
    """Return the models that were evaluated in these runs, x first."""
    columns = dict.fromkeys(key for trial in trials for row in trial.rows[-1:] for key in row)
    further = [key.removeprefix(f"{metric}/") for key in columns if key.startswith(f"{metric}/")]
    # `diversity/starts` is of a probe: of a further model there is a loss or an accuracy too
    return ["x", *(name for name in further if columns.keys() & {f"loss/{name}", f"accuracy/{name}"})]


def reachable_target(
    trials: Iterable[Trial], metric: str = "accuracy", known: KnownColumns = DECLARED
) -> float | None:
    """Return the highest whole percentage that every finished run has at its end; None for other scores."""
    if metric != "accuracy" and not known.is_diagnostic(metric):
        return None
    ends = [end for trial in trials if (end := final(trial)) is not None]
    lowest = math.floor(min(ends) * 100 + 1e-9) / 100 if ends else 0.0
    return lowest if lowest > 0 else None


def summarise(
    trials: Sequence[Trial],
    target: float | None,
    measure: Measure = FINAL,
    columns: Sequence[str] = COLUMNS,
) -> list[MethodSummary]:
    """Return one line for each label and each of its models.

    `measure` is what `score` means; `columns` may name further measures, as `top` or `smoothed:50`.
    """
    return [
        _line(group, model, target, measure, columns)
        for group in by_method(trials).values()
        for model in models_of(group, measure.metric)
    ]


def _line(
    group: Sequence[Trial], model: str, target: float | None, measure: Measure, columns: Sequence[str]
) -> MethodSummary:
    mean, spread = _mean_and_spread(group, measure, model)
    times = [total_cost(trial.rows).seconds for trial in group]
    costs = _costs(group, model, target, measure)
    means = costs.means or {}
    return MethodSummary(
        label=group[0].label,
        model=model,
        seeds=len(group),
        failed=sum(why_diverged(trial) is not None for trial in group),
        unfinished=sum(map(is_unfinished, group)),
        measure=str(measure),
        score=mean,
        spread=spread,
        others={
            name: _mean_and_spread(group, parse_measure(name), model) for name in measure_columns(columns)
        },
        reached=costs.reached,
        rounds=means.get("rounds"),
        bytes=means.get("bytes"),
        seconds_to_target=means.get("seconds"),
        seconds=statistics.fmean(times),
        gradients=means.get("gradients"),
        seconds_spread=statistics.stdev(times) if len(times) > 1 else None,
        spreads=costs.spreads,
        missed=costs.missed,
        limits=costs.limits,
    )


def _costs(group: Sequence[Trial], model: str, target: float | None, measure: Measure) -> CostSummary:
    """Return what the runs took to reach the target; diverged ones neither reached nor missed it."""
    reached, missed, goal = [], [], _of_target(measure)
    for trial in group:
        if target is None or why_diverged(trial) is not None:
            continue
        cost = cost_to(trial.rows, target, model, goal)
        if cost is not None:
            reached.append(cost)
        elif trial.problem is None and curve(trial.rows, model, goal.metric):
            missed.append(total_cost(trial.rows))
    return summarise_costs(reached, missed)


def _mean_and_spread(
    group: Sequence[Trial], measure: Measure, model: str
) -> tuple[float | None, float | None]:
    scores = [value for trial in group if (value := score(trial, measure, model)) is not None]
    mean = statistics.fmean(scores) if scores else None
    return mean, statistics.stdev(scores) if len(scores) > 1 else None


def cost_to(
    rows: Iterable[HistoryRow], target: float | None, model: str = "x", measure: Measure = FINAL
) -> TargetCost | None:
    """Return what it took until the target was first reached; None where it was not."""
    column, sign = measure.metric if model == "x" else f"{measure.metric}/{model}", measure.sign
    rows = list(rows)
    for index, row in enumerate(rows):
        value = row.get(column)
        if target is not None and value is not None and sign * value >= sign * target:
            return total_cost(rows[: index + 1])
    return None


def _of_target(measure: Measure) -> Measure:
    """Return the measure whose metric the target is of: the accuracy where methods are ranked by a probe."""
    return FINAL if measure.is_diagnostic else measure


def headings(target: float | None, measure: Measure = FINAL, columns: Sequence[str] = COLUMNS) -> list[str]:
    """Return the table's headings with the measure and the target in them."""
    shown = "target" if target is None else _shown_target(target, _of_target(measure))
    return ["method", *(heading(name, measure, shown) for name in columns)]


def _shown_target(target: float, measure: Measure) -> str:
    if measure.metric == "accuracy":
        return f"{100 * target:g} %"
    shown = f"{100 * target:g} %" if is_accuracy(measure.metric) else f"{target:g}"
    return f"{measure.metric} {shown}"


def cells(
    line: MethodSummary, columns: Sequence[str] = COLUMNS, known: KnownColumns = DECLARED
) -> tuple[str, ...]:
    """Return a line as text, one cell per heading; the first score says how many runs have none.

    `known` says which columns are written in per cent.
    """
    texts, scored = [], False
    for name in columns:
        if name in COST_COLUMNS:
            texts.append(shown_cost(COST_COLUMNS[name][0], line.costs, line.seeds))
        elif name == SECONDS:
            texts.append(shown_seconds(line.seconds, line.seconds_spread))
        else:
            texts.append(_shown_score(line, name, known, counts=not scored))
            scored = True
    return (line.title, *texts)


def _shown_score(line: MethodSummary, column: str, known: KnownColumns, *, counts: bool) -> str:
    """Return a score as mean ± standard deviation, with `counts` how many runs have none."""
    if column == SCORE:
        mean, spread, measure = line.score, line.spread, parse_measure(line.measure, known)
    else:
        mean, spread = line.others[column]
        measure = parse_measure(column, known)
    without = ((line.failed, "diverged"), (line.unfinished, "unfinished"))
    parts = [] if mean is None else [measure.shown(mean, spread)]
    parts += [f"{count} of {line.seeds} {what}" for count, what in without if count and counts]
    return ", ".join(parts) or "—"
