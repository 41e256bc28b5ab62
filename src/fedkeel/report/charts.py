"""Charts as SVG: curves over a pair of axes, and the discs of a split. No other module draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from fedkeel.report.style import CHART_STYLE, CURVE_COLOURS

Points = Sequence[tuple[float, float]]

_FEW = 12  # curves with fewer points show each of them
_CELL, _MARGIN = 22, 64  # of the picture of a split


class Drawing(NamedTuple):
    """An SVG picture: inside a page that has the style sheet, or as a file of its own."""

    width: float
    height: float
    label: str
    parts: tuple[str, ...]
    small: bool = False

    def inline(self) -> str:
        """Return the element for a page made by `html_page`."""
        return self._element("") + self._rest()

    def file(self) -> str:
        """Return a whole SVG file, with its style sheet."""
        opened = self._element('xmlns="http://www.w3.org/2000/svg" ')
        return f"{opened}<style>{CHART_STYLE}</style>\n{self._rest()}"

    def _element(self, more: str) -> str:
        size = f"{self.width:g}", f"{self.height:g}"
        box = f'viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}"'
        kind = "chart small" if self.small else "chart"
        return f'<svg {more}class="{kind}" {box} role="img" aria-label="{escape(self.label)}">\n'

    def _rest(self) -> str:
        return "\n".join(self.parts) + "\n</svg>"


class ChartCurve(NamedTuple):
    """A curve: its points from left to right, and how it is drawn.

    `band` holds (x, low, high); `hollow` says of each point whether it is drawn hollow.
    """

    label: str
    points: Points
    colour: int
    dashed: bool = False
    band: Sequence[tuple[float, float, float]] = ()
    hollow: Sequence[bool] = ()

    @property
    def classes(self) -> str:
        """The names under which the style sheet knows its line."""
        return f"line c{self.colour % CURVE_COLOURS}{' dashed' * self.dashed}"


class ChartSize(NamedTuple):
    """The size of a chart and the margins around its axes, in pixels."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float


WIDE = ChartSize(920, 420, 72, 26, 14, 46)
SMALL = ChartSize(460, 260, 62, 16, 30, 40)


class Axis(NamedTuple):
    """Maps values from `low` to `high`, or their logarithms, to pixels from `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def pixel(self, value: float) -> float:
        """Return where a value lies."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.stop - self.start) * (at - low) / (high - low)

    def ticks(self, most: int) -> list[float]:
        """Return at most about that many round numbers between the ends."""
        if not self.log or self.high < 10 * self.low:
            step = _nice((self.high - self.low) / most)
            first = math.ceil(self.low / step - 1e-9)
            return [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        factors = (1, 2, 5) if last - first <= 3 else (1,)
        every = max(1, math.ceil((last - first) / most))
        marks = [factor * 10.0**k for k in range(first, last + 1, every) for factor in factors]
        return [mark for mark in marks if self.low * (1 - 1e-9) <= mark <= self.high * (1 + 1e-9)]


def _nice(step: float) -> float:
    """Return the smallest of 1, 2, 5 · 10^k that is not below a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def fit_axis(
    values: Sequence[float], start: float, stop: float, *, log: bool = False, rounded: bool = False
) -> Axis:
    """Return the axis on which all values fit; `rounded` ends it at round numbers."""
    low, high = min(values), max(values)
    if log:
        return Axis(low, high, start, stop, log) if high > low else Axis(low / 2, high * 2, start, stop, log)
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        half = 0.05 * abs(high) or 0.5
        low, high = low - half, high + half
    if rounded:
        step = _nice((high - low) / 5)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Axis(low, high, start, stop)


def line_chart(title: str, series: Mapping[str, Points], *, x: str = "round", log: bool = False) -> Drawing:
    """Return named curves as a small chart with a title and a legend; `log`: logarithmic y axis."""
    kept = {name: [(a, b) for a, b in points if not log or b > 0] for name, points in series.items()}
    curves = [ChartCurve(name, points, i) for i, (name, points) in enumerate(kept.items())]
    drawn = draw_chart(curves, x=x, title=title, size=SMALL, log_y=log)
    shown = [curve for curve in curves if curve.points]
    columns = 3 if max((len(curve.label) for curve in shown), default=0) < 17 else 2
    height = drawn.height + 15 * math.ceil(len(shown) / columns)
    return drawn._replace(parts=(*drawn.parts, *_drawn_legend(shown, columns)), height=height)


def draw_chart(
    curves: Sequence[ChartCurve],
    *,
    x: str,
    y: str = "",
    title: str = "",
    size: ChartSize = WIDE,
    log_x: bool = False,
    log_y: bool = False,
    span_x: Sequence[float] = (),
    percent: bool = False,
    target: float | None = None,
) -> Drawing:
    """Return curves over their axes. `x` and `y` name the axes; the x axis also spans `span_x`.

    `percent` writes the y axis in per cent; `target` is a level to mark.
    """
    curves = [curve for curve in curves if curve.points]
    label = title or f"{y} by {x}: {', '.join(curve.label for curve in curves)}"
    if not curves:
        note = f'<text x="{size.left:g}" y="{size.height / 2:g}">{escape(title)}: nothing to draw</text>'
        return Drawing(size.width, size.height, label, (note,), size is SMALL)
    xs = [*span_x, *(a for curve in curves for a, _ in curve.points)]
    ys = [b for curve in curves for b in (*(b for _, b in curve.points), *_edges(curve))]
    across = fit_axis(xs, size.left, size.width - size.right, log=log_x)
    up = fit_axis(ys, size.height - size.bottom, size.top, log=log_y, rounded=True)
    parts = [*_drawn_names(title, x, y, size), *_drawn_scales(across, up, size, percent)]
    if target is not None and up.low <= target <= up.high:
        parts += _drawn_target(target, up, size, percent)
    for curve in curves:
        if curve.band:
            parts.append(_drawn_band(curve, across, up))
    for curve in curves:
        parts += _drawn_curve(curve, across, up, percent)
    return Drawing(size.width, size.height, label, tuple(parts), size is SMALL)


def legend(curves: Sequence[ChartCurve]) -> str:
    """Return the curves' names with their colours as an HTML list, to stand above a chart."""
    keys = [
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true"><path class="{curve.classes}" d="M1 5H25"/></svg>'
        f"{escape(curve.label)}</li>"
        for curve in curves
    ]
    return f'<ul class="legend">{"".join(keys)}</ul>'


def disc_grid(counts: Sequence[Sequence[int]], names: Sequence[str], label: str) -> Drawing:
    """Return a column of discs per client and a line per class; a disc's area is the number of samples."""
    top = max(1, *(count for row in counts for count in row))
    foot = _CELL * len(names)
    parts = [
        f'<circle class="disc c0" cx="{_MARGIN + (i + 0.5) * _CELL:g}" cy="{(k + 0.5) * _CELL:g}" '
        f'r="{0.48 * _CELL * math.sqrt(count / top):.2f}">'
        f"<title>client {i}, class {escape(names[k])}: {count} samples</title></circle>"
        for i, row in enumerate(counts)
        for k, count in enumerate(row)
        if count
    ]
    parts += [_text(_MARGIN - 8, (k + 0.5) * _CELL + 4, name, "end") for k, name in enumerate(names)]
    parts += [
        _text(_MARGIN + (i + 0.5) * _CELL, foot + 18, str(i), "middle")
        for i in range(0, len(counts), max(1, len(counts) // 20))
    ]
    parts.append(_text(_MARGIN, foot + 42, f"client → \u00a0 area = samples, largest {top}"))
    return Drawing(_MARGIN + _CELL * len(counts) + 20, foot + 56, label, tuple(parts))


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _edges(curve: ChartCurve) -> Iterator[float]:
    for _, low, high in curve.band:
        yield from (low, high)


def _drawn_names(title: str, x: str, y: str, size: ChartSize) -> Iterator[str]:
    middle, height = (size.left + size.width - size.right) / 2, (size.top + size.height - size.bottom) / 2
    if title:
        yield _text(size.left, 16, title, more=' class="title"')
    yield _text(middle, size.height - (8 if size is SMALL else 6), x, "middle")
    if y:
        yield _text(13, height, y, "middle", f' transform="rotate(-90 13 {height:g})"')


def _drawn_scales(across: Axis, up: Axis, size: ChartSize, percent: bool) -> Iterator[str]:
    left, right, bottom = size.left, size.width - size.right, size.height - size.bottom
    for value in up.ticks(6):
        at = up.pixel(value)
        yield f'<path class="grid" d="M{left:g} {at:.1f}H{right:g}"/>'
        yield _text(left - 8, at + 4, f"{100 * value:.4g} %" if percent else f"{value:.4g}", "end")
    whole = float(across.low).is_integer() and float(across.high).is_integer()
    for value in across.ticks(6):
        if not whole or abs(value - round(value)) < 1e-9:
            yield _text(across.pixel(value), bottom + 17, f"{value:.4g}", "middle")
    yield f'<path class="axis" d="M{left:g} {bottom:g}H{right:g}"/>'


def _drawn_target(target: float, up: Axis, size: ChartSize, percent: bool) -> list[str]:
    at = up.pixel(target)
    line = f'<path class="target" d="M{size.left:g} {at:.1f}H{size.width - size.right:g}"/>'
    shown = f"{100 * target:g} %" if percent else f"{target:g}"
    return [line, _text(size.left + 6, at - 6, f"target {shown}")]


def _drawn_band(curve: ChartCurve, across: Axis, up: Axis) -> str:
    upper = [f"{across.pixel(x):.1f} {up.pixel(high):.1f}" for x, _, high in curve.band]
    lower = [f"{across.pixel(x):.1f} {up.pixel(low):.1f}" for x, low, _ in reversed(curve.band)]
    return f'<path class="band c{curve.colour % CURVE_COLOURS}" d="M{"L".join([*upper, *lower])}Z"/>'


def _drawn_curve(curve: ChartCurve, across: Axis, up: Axis, percent: bool) -> list[str]:
    pixels = [(across.pixel(x), up.pixel(y)) for x, y in curve.points]
    last = curve.points[-1][1]
    end = f"{100 * last:.1f} %" if percent else f"{last:.4g}"
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in pixels)
    title = f"<title>{escape(curve.label)}: {end} at the end</title>"
    parts = [f'<path class="{curve.classes}" d="M{path}">{title}</path>']
    if curve.hollow or len(pixels) < _FEW:
        hollow = curve.hollow or [False] * len(pixels)
        parts += [
            f'<circle class="point c{curve.colour % CURVE_COLOURS}{" hollow" * is_hollow}" '
            f'cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
            for (x, y), is_hollow in zip(pixels, hollow, strict=True)
        ]
    return parts


def _drawn_legend(curves: Sequence[ChartCurve], columns: int) -> Iterator[str]:
    """Yield the legend below a small chart that stands alone."""
    for index, curve in enumerate(curves):
        left = SMALL.left + (SMALL.width - SMALL.left - SMALL.right) / columns * (index % columns)
        top = SMALL.height + 6 + 15 * (index // columns)
        yield f'<path class="{curve.classes}" d="M{left:g} {top:g}h16"/>'
        yield _text(left + 21, top + 4, curve.label)
