"""Plain line charts as one SVG element without a style sheet: diagnostics, sweeps, pictures of the docs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from fedkeel.report.tables import HistoryRow, Trial, by_method

COLOURS = ("#2563c9", "#d2650a", "#12875c", "#8446c8", "#c8324d", "#0f8a9d", "#8a6a1f", "#5b6475")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 460.0, 260.0, 62.0, 12.0, 30.0, 40.0

Points = Sequence[tuple[float, float]]


class _Axis(NamedTuple):
    """Maps values from `low` to `high`, or their logarithms, to places from `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool

    def place(self, value: float) -> float:
        share = (self._scaled(value) - self._scaled(self.low)) / (
            self._scaled(self.high) - self._scaled(self.low)
        )
        return self.start + (self.stop - self.start) * share

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    @property
    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            factors = (1, 2, 5) if last - first < 2 else (1,)
            marks = [factor * 10.0**k for k in range(first - 1, last + 1) for factor in factors]
            return [mark for mark in marks if self.low <= mark <= self.high]
        step = _nice((self.high - self.low) / 4)
        first = math.ceil(self.low / step - 1e-9)
        return [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def lines(
    title: str, series: Mapping[str, Points], *, x: str = "round", y: str = "", log: bool = False
) -> str:
    """Return curves as an SVG element with title, axes and legend; `log` makes the axis logarithmic."""
    shown = {name: [(a, b) for a, b in points if not log or b > 0] for name, points in series.items()}
    shown = {name: points for name, points in shown.items() if points}
    if not shown:
        return ""
    abreast = 3 if max(map(len, shown)) < 17 else 2  # names in a line of the legend
    height = _HEIGHT + 15 * math.ceil(len(shown) / abreast)
    values = [b for points in shown.values() for _, b in points]
    places = [a for points in shown.values() for a, _ in points]
    across = _axis(places, _LEFT, _WIDTH - _RIGHT, log=False)
    up = _axis(values, _HEIGHT - _BOTTOM, _TOP, log=log)
    drawn = [*_frame(title, x, y, across, up)]
    for number, (name, points) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join(f"{across.place(a):.1f} {up.place(b):.1f}" for a, b in points)
        drawn.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        if len(points) < 12:
            drawn += [
                f'<circle cx="{across.place(a):.1f}" cy="{up.place(b):.1f}" r="2.6" fill="{colour}"/>'
                for a, b in points
            ]
        left = _LEFT + 390 / abreast * (number % abreast)
        top = _HEIGHT + 4 + 15 * (number // abreast)
        drawn.append(f'<rect x="{left:g}" y="{top:g}" width="16" height="3" fill="{colour}"/>')
        drawn.append(f'<text x="{left + 21:g}" y="{top + 5:g}" fill="#667085">{escape(name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" width="{_WIDTH:g}" '
        f'role="img" aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="11">\n'
        + "\n".join(drawn)
        + "\n</svg>"
    )


def diagnostics(runs: Mapping[str, Sequence[HistoryRow]], columns: Sequence[str] | None = None) -> list[str]:
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
        charts.append(lines(name, series))
    return [chart for chart in charts if chart]


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


def _axis(values: Sequence[float], start: float, stop: float, *, log: bool) -> _Axis:
    low, high = min(values), max(values)
    if high <= low:
        low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
    return _Axis(low, high, start, stop, log)


def _frame(title: str, x: str, y: str, across: _Axis, up: _Axis) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    drawn = [f'<text x="{_LEFT:g}" y="16" fill="#667085" font-weight="600">{escape(title)}</text>']
    for value in up.ticks:
        place = up.place(value)
        drawn.append(f'<path d="M{_LEFT:g} {place:.1f}H{right:g}" stroke="#98a2b3" stroke-opacity="0.3"/>')
        drawn.append(
            f'<text x="{_LEFT - 6:g}" y="{place + 4:.1f}" text-anchor="end" fill="#667085">{value:.4g}</text>'
        )
    for value in across.ticks:
        drawn.append(
            f'<text x="{across.place(value):.1f}" y="{bottom + 15:g}" text-anchor="middle" '
            f'fill="#667085">{value:.4g}</text>'
        )
    drawn.append(f'<path d="M{_LEFT:g} {bottom:g}H{right:g}" stroke="#98a2b3"/>')
    middle = (_LEFT + right) / 2
    label = f"{x}; {y}" if y else x
    drawn.append(
        f'<text x="{middle:g}" y="{bottom + 31:g}" text-anchor="middle" fill="#667085">{escape(label)}</text>'
    )
    return drawn


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-12))
