"""Small static pictures as SVG, for where no script runs: a notebook's cell, a page of the docs.

All else is drawn by plotly, in the pages of `report/page`. Its JavaScript weighs 4.8 MB, too much for each
cell of a notebook, and writing its charts as files without a browser takes Chrome (kaleido).
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from fedkeel.common.columns import is_accuracy

Points = Sequence[tuple[float, float]]

_LIGHT = (
    "#2563c9",
    "#c2570c",
    "#0f7f55",
    "#8446c8",
    "#c2304b",
    "#0b7d90",
    "#8a6412",
    "#b0368f",
    "#4f5b6e",
    "#557606",
)
_DARK = (
    "#6ea8ff",
    "#ff9f4a",
    "#4cc998",
    "#bd8cf5",
    "#ff7d92",
    "#4fc8da",
    "#d8b45a",
    "#f08ad6",
    "#a9b4c6",
    "#a9cf54",
)
_DASHES = ("", "7 4", "2 3", "8 3 2 3", "13 4")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 560, 300, 62, 16, 30, 40
_CELL, _MARGIN = 22, 64  # of the picture of a split


class _Axis(NamedTuple):
    """Maps values from `low` to `high`, or their logarithms, to pixels from `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def pixel(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.stop - self.start) * (at - low) / (high - low)

    def ticks(self) -> list[float]:
        if self.log and self.high >= 10 * self.low:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**k for k in range(first, last + 1, max(1, math.ceil((last - first) / 6)))]
        step = _nice((self.high - self.low) / 6)
        first = math.ceil(self.low / step - 1e-9)
        return [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def line_picture(
    title: str,
    series: Mapping[str, Points],
    *,
    x: str = "round",
    log: bool = False,
    percent: bool = False,
    bands: Mapping[str, Sequence[tuple[float, float, float]]] | None = None,
) -> str:
    """Return curves with a title and a legend as an SVG file; `bands` has (x, low, high) by name.

    `log` makes the y axis logarithmic, `percent` writes it in per cent.
    """
    bands = bands or {}
    kept = {name: [(a, b) for a, b in points if not log or b > 0] for name, points in series.items()}
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return _file(_WIDTH, _HEIGHT, title, [_text(_LEFT, _HEIGHT / 2, f"{title}: nothing to draw")])
    ys = [b for points in kept.values() for _, b in points]
    ys += [end for name in kept for _, *ends in bands.get(name, ()) for end in ends]
    across = _fit([a for points in kept.values() for a, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _fit(ys, _HEIGHT - _BOTTOM, _TOP, log=log)
    parts = [_text(_LEFT, 17, title, kind=' class="title"')]
    parts += _scales(across, up, x, percent)
    for index, name in enumerate(kept):
        if name in bands:
            parts.append(_band(bands[name], index, across, up))
    for index, (name, points) in enumerate(kept.items()):
        path = "L".join(f"{across.pixel(a):.1f} {up.pixel(b):.1f}" for a, b in points)
        parts.append(f'<path class="{_line(index)}" d="M{path}"><title>{escape(name)}</title></path>')
    legend = list(_legend(list(kept)))
    columns = _legend_columns(list(kept))
    return _file(_WIDTH, _HEIGHT + 18 * math.ceil(len(kept) / columns) + 4, title, [*parts, *legend])


def inline_lines(
    column: str,
    series: Mapping[str, Points],
    bands: Mapping[str, Sequence[tuple[float, float, float]]] | None = None,
) -> str:
    """Return curves over the rounds as an image for a notebook's cell; its style sheet stays in the image."""
    percent = is_accuracy(column)
    drawn = line_picture(column, series, x="communication rounds", percent=percent, bands=bands)
    label = f"{column} of {', '.join(series)} over the rounds"
    return f'<img alt="{escape(label)}" src="data:image/svg+xml;base64,{b64encode(drawn.encode()).decode()}">'


def disc_picture(counts: Sequence[Sequence[int]], names: Sequence[str], title: str) -> str:
    """Return a split as an SVG file: a column per client, a line per class, samples as the area of a disc."""
    top = max(1, *(count for row in counts for count in row))
    foot = _CELL * len(names)
    parts = [
        f'<circle class="c0 disc" cx="{_MARGIN + (i + 0.5) * _CELL:g}" cy="{(k + 0.5) * _CELL:g}" '
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
    return _file(_MARGIN + _CELL * len(counts) + 20, foot + 56, title, parts)


def _file(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    light, dark = (
        "".join(f".c{i} {{ --c: {colour} }} " for i, colour in enumerate(colours))
        for colours in (_LIGHT, _DARK)
    )
    style = (
        f":root {{ --ink: #596275; --rule: #e2e6ed }} {light}"
        f"@media (prefers-color-scheme: dark) {{ :root {{ --ink: #9ba6b8; --rule: #2a323e }} {dark}}} "
        "text { fill: var(--ink); font: 12px system-ui, sans-serif } .title { font-weight: 600 } "
        ".grid { stroke: var(--rule) } .axis { stroke: var(--ink) } .disc { fill: var(--c) } "
        ".band { fill: var(--c); opacity: .15 } "
        ".line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round } "
        + " ".join(f".d{i} {{ stroke-dasharray: {dash} }}" for i, dash in enumerate(_DASHES) if dash)
    )
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    return "\n".join([f"{opened}<style>{style}</style>", *parts, "</svg>"])


def _line(index: int) -> str:
    return f"line c{index % len(_LIGHT)} d{index // len(_LIGHT) % len(_DASHES)}"


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _nice(step: float) -> float:
    """Return the smallest of 1, 2, 5 · 10^k that is not below a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def _fit(values: Sequence[float], start: float, stop: float, *, log: bool = False) -> _Axis:
    low, high = min(values), max(values)
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        half = 0.05 * abs(high) or 0.5
        low, high = (low / 2, high * 2) if log else (low - half, high + half)
    return _Axis(low, high, start, stop, log)


def _scales(across: _Axis, up: _Axis, x: str, percent: bool) -> Iterator[str]:
    for value in up.ticks():
        at = up.pixel(value)
        yield f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>'
        yield _text(_LEFT - 8, at + 4, f"{100 * value:.4g} %" if percent else f"{value:.4g}", "end")
    for value in across.ticks():
        yield _text(across.pixel(value), _HEIGHT - _BOTTOM + 17, f"{value:.4g}", "middle")
    yield f'<path class="axis" d="M{_LEFT} {_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"/>'
    yield _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, x, "middle")


def _band(band: Sequence[tuple[float, float, float]], index: int, across: _Axis, up: _Axis) -> str:
    upper = [f"{across.pixel(x):.1f} {up.pixel(high):.1f}" for x, _, high in band]
    lower = [f"{across.pixel(x):.1f} {up.pixel(low):.1f}" for x, low, _ in reversed(band)]
    return f'<path class="band c{index % len(_LIGHT)}" d="M{"L".join([*upper, *lower])}Z"/>'


def _legend_columns(names: Sequence[str]) -> int:
    return 3 if max(map(len, names)) < 20 else 2 if max(map(len, names)) < 32 else 1


def _legend(names: Sequence[str]) -> Iterator[str]:
    columns = _legend_columns(names)
    for index, name in enumerate(names):
        left = _LEFT + (_WIDTH - _LEFT - _RIGHT) / columns * (index % columns)
        top = _HEIGHT + 10 + 18 * (index // columns)
        yield f'<path class="{_line(index)}" d="M{left:g} {top:g}h18"/>'
        yield _text(left + 24, top + 4, name)
