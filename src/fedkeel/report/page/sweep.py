"""A sweep's plot: the score against the value, the mean and every seed."""

from __future__ import annotations

from collections.abc import Sequence

from fedkeel.report.measures import Measure
from fedkeel.report.page.document import Axis, Chart, Section, Series, Text
from fedkeel.report.page.runs import short
from fedkeel.report.tables import Trial, by_method, score


def sweep_section(over: str, trials: Sequence[Trial], measure: Measure, best: str) -> Section:
    """Return the plot of a sweep; `best` says which value is, and by what it was chosen."""
    groups = by_method(trials)
    places = dict(zip(groups, _places(list(groups)), strict=True))
    seeds = list(dict.fromkeys(trial.seed for trial in trials))
    scores = {value: [score(trial, measure) for trial in group] for value, group in groups.items()}
    known = {value: [one for one in found if one is not None] for value, found in scores.items()}
    shown = sorted((value for value in groups if known[value]), key=lambda value: places[value])
    series = [
        Series(
            name="mean",
            x=tuple(_place(places[value]) for value in shown),
            y=tuple(short(sum(known[value]) / len(known[value])) for value in shown),
            low=tuple(short(min(known[value])) for value in shown),
            high=tuple(short(max(known[value])) for value in shown),
            colour=0,
        )
    ]
    if len(seeds) > 1:
        for index, seed in enumerate(seeds, start=1):
            points = [
                (places[trial.label], found)
                for trial in trials
                if trial.seed == seed and (found := score(trial, measure)) is not None
            ]
            points.sort()
            series.append(
                Series(
                    name=f"seed {seed}",
                    x=tuple(_place(place) for place, _ in points),
                    y=tuple(short(found) for _, found in points),
                    kind="points",
                    colour=index,
                )
            )
    numbers = [place for place, _ in places.values()]
    chart = Chart(
        id="sweep-plot",
        title=f"{measure.label} against {over}",
        x=Axis(label=over, log=_spread(numbers) and all(not text for _, text in places.values())),
        y=Axis(label=measure.label, percent=measure.percent),
        series=tuple(series),
        note="Line: mean over seeds; band: worst to best seed.",
        wide=True,
    )
    return Section(id="sweep", title="Against the value", blocks=(chart, Text(id="best", paragraphs=(best,))))


def _places(values: list[str]) -> list[tuple[float, str]]:
    """Return where values stand on the axis: at themselves where all are numbers, else in their order."""
    try:
        return [(float(value), "") for value in values]
    except ValueError:
        return [(float(index), value) for index, value in enumerate(values)]


def _place(place: tuple[float, str]) -> float | str:
    return place[1] or place[0]


def _spread(numbers: list[float]) -> bool:
    """Tell whether numbers are better told apart on a logarithmic axis."""
    return len(numbers) > 2 and min(numbers) > 0 and max(numbers) / min(numbers) >= 10
