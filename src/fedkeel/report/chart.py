"""Accuracy curves as inline SVG: a mean line and a band from the worst to the best seed for each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from fedkeel.report.tables import Trial, by_method, curve, models_of

COLOURS = 8
_WIDTH, _HEIGHT = 920.0, 420.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 72.0, 18.0, 14.0, 46.0


class Point(NamedTuple):
    """The accuracies of all seeds after a number of rounds."""

    round: int
    mean: float
    low: float
    high: float


class Series(NamedTuple):
    """A curve: a method, which of its models, its colour, and its points."""

    label: str
    model: str
    colour: int
    points: list[Point]


def series_of(trials: Sequence[Trial]) -> list[Series]:
    """Return a curve for each method and model, over the rounds that every seed has."""
    found = []
    for index, (method, group) in enumerate(by_method(trials).items()):
        for model in models_of(group):
            curves = [dict(curve(trial.rows, model)) for trial in group]
            shared = sorted(set(curves[0]).intersection(*curves[1:]))
            points = [_point(round, [accuracies[round] for accuracies in curves]) for round in shared]
            label = method if model == "x" else f"{method} ({model})"
            if points:
                found.append(Series(label, model, index % COLOURS, points))
    return found


def _point(round: int, values: list[float]) -> Point:
    return Point(round, sum(values) / len(values), min(values), max(values))


class _Frame(NamedTuple):
    """The axes: rounds from 0 to `last`, accuracies from `low` to `high`."""

    last: int
    low: float
    high: float

    def x(self, round: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * round / self.last

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def chart(curves: Sequence[Series], target: float | None = None) -> str:
    """Return the curves as one SVG element; its colours are classes c0 … c7 of the page."""
    if not curves:
        return '<p class="quiet">No round was evaluated yet.</p>'
    frame = _frame(curves)
    drawn = [*_grid(frame), *_target(frame, target)]
    drawn += [_band(frame, one) for one in curves if one.model == "x"]
    drawn += [_line(frame, one) for one in curves]
    names = escape(", ".join(one.label for one in curves))
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="Accuracy by round: {names}">\n'
        + "\n".join(drawn)
        + "\n</svg>"
    )


def _frame(curves: Sequence[Series]) -> _Frame:
    last = max(one.points[-1].round for one in curves)
    low = min(point.low for one in curves for point in one.points)
    high = max(point.high for one in curves for point in one.points)
    step = _nice(max(high - low, 0.01) / 5)
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return _Frame(last, low, high if high > low else low + step)


def _nice(step: float) -> float:
    """Return the smallest of 1, 2, 5 · 10^k that is not below a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step - 1e-12)


def _ticks(low: float, high: float) -> list[float]:
    step = _nice((high - low) / 6)
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _grid(frame: _Frame) -> list[str]:
    drawn = []
    left, right, bottom = _LEFT, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for value in _ticks(frame.low, frame.high):
        y = frame.y(value)
        drawn.append(f'<path class="grid" d="M{left:g} {y:.1f}H{right:g}"/>')
        drawn.append(f'<text x="{left - 8:g}" y="{y + 4:.1f}" text-anchor="end">{100 * value:g} %</text>')
    for round in _ticks(0, frame.last):
        if round == int(round):
            x = frame.x(round)
            drawn.append(f'<text x="{x:.1f}" y="{bottom + 19:g}" text-anchor="middle">{round:g}</text>')
    drawn.append(f'<path class="axis" d="M{left:g} {bottom:g}H{right:g}"/>')
    middle = (left + right) / 2
    drawn.append(f'<text x="{middle:g}" y="{_HEIGHT - 6:g}" text-anchor="middle">communication rounds</text>')
    height = (_TOP + bottom) / 2
    drawn.append(
        f'<text transform="translate(13 {height:g}) rotate(-90)" text-anchor="middle">test accuracy</text>'
    )
    return drawn


def _target(frame: _Frame, target: float | None) -> list[str]:
    if target is None or not frame.low <= target <= frame.high:
        return []
    y, right = frame.y(target), _WIDTH - _RIGHT
    return [
        f'<path class="target" d="M{_LEFT:g} {y:.1f}H{right:g}"/>',
        f'<text x="{_LEFT + 6:g}" y="{y - 6:.1f}">target {100 * target:g} %</text>',
    ]


def _band(frame: _Frame, one: Series) -> str:
    upper = [f"{frame.x(p.round):.1f} {frame.y(p.high):.1f}" for p in one.points]
    lower = [f"{frame.x(p.round):.1f} {frame.y(p.low):.1f}" for p in reversed(one.points)]
    return f'<path class="band c{one.colour}" d="M{"L".join([*upper, *lower])}Z"/>'


def _line(frame: _Frame, one: Series) -> str:
    points = [f"{frame.x(p.round):.1f} {frame.y(p.mean):.1f}" for p in one.points]
    dashed = "" if one.model == "x" else " dashed"
    title = f"{escape(one.label)}: {100 * one.points[-1].mean:.1f} % at the end"
    return f'<path class="line c{one.colour}{dashed}" d="M{"L".join(points)}"><title>{title}</title></path>'
