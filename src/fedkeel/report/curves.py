"""What charts show of runs: accuracies over the rounds, and the columns that probes have reported."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from fedkeel.columns import is_accuracy, is_diagnostic
from fedkeel.report.charts import ChartCurve, Drawing, draw_chart, line_chart
from fedkeel.report.tables import HistoryRow, Trial, by_method, curve, models_of


def accuracy_curves(trials: Sequence[Trial], metric: str = "accuracy") -> list[ChartCurve]:
    """Return a curve of a metric for each method and model, over the rounds that every seed has.

    The line is the mean over seeds; the band, of the first model only, goes from the worst to the best seed.
    """
    found = []
    for index, (method, group) in enumerate(by_method(trials).items()):
        for model in models_of(group, metric):
            by_round = [dict(curve(trial.rows, model, metric)) for trial in group]
            shared = sorted(set(by_round[0]).intersection(*by_round[1:]))
            values = {round: [accuracies[round] for accuracies in by_round] for round in shared}
            first = model == "x"
            found.append(
                ChartCurve(
                    method if first else f"{method} ({model})",
                    [(round, statistics.fmean(seeds)) for round, seeds in values.items()],
                    colour=index,
                    dashed=not first,
                    band=[(round, min(seeds), max(seeds)) for round, seeds in values.items()]
                    if first
                    else (),
                )
            )
    return [one for one in found if one.points]


def accuracy_chart(
    curves: Sequence[ChartCurve], target: float | None = None, metric: str = "accuracy"
) -> str:
    """Return the curves as an element of a page."""
    if not curves:
        return '<p class="quiet">No round was evaluated yet.</p>'
    return draw_chart(
        curves,
        x="communication rounds",
        y=metric if is_diagnostic(metric) else f"test {metric}",
        span_x=[0],
        percent=is_accuracy(metric),
        target=target,
    ).inline()


def diagnostic_charts(
    runs: Mapping[str, Sequence[HistoryRow]], columns: Sequence[str] | None = None
) -> list[Drawing]:
    """Return a chart for each column that probes have reported, of one or several runs."""
    names = dict.fromkeys(key for rows in runs.values() for row in rows for key in row)
    wanted = [name for name in names if _is_diagnostic(name)] if columns is None else columns
    charts = []
    for name in wanted:
        series = {
            run: [
                (row["round"] + 1, float(row[name])) for row in rows if isinstance(row.get(name), int | float)
            ]
            for run, rows in runs.items()
        }
        if any(series.values()):
            charts.append(line_chart(name, series))
    return charts


def averaged(trials: Sequence[Trial]) -> dict[str, list[HistoryRow]]:
    """Return a method's rows as means over its seeds: of the rounds and columns that all of them have."""
    found: dict[str, list[HistoryRow]] = {}
    for method, group in by_method(trials).items():
        rows: list[HistoryRow] = []
        for same in zip(*(trial.rows for trial in group), strict=False):
            numbers = [key for key in same[0] if all(isinstance(r.get(key), int | float) for r in same)]
            rows.append({key: statistics.fmean(row[key] for row in same) for key in numbers})
        found[method] = rows
    return found


def _is_diagnostic(name: str) -> bool:
    """Tell whether a column is a probe's and worth a picture: costs are in the table."""
    plain = ("divergence", "drift", "local_updates", "global_update", "diversity")
    kinds = ("divergence/", "diversity/", "cosine/", "losses/", "excess/", "clients/", "switching/")
    return (name in plain or name.startswith(kinds)) and name not in ("cosine/error", "switching/round")
