"""Curves of bounds: a page with inline SVG that needs no network and no script, and a line of bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fedkeel.theory import BoundRow

_WIDTH, _HEIGHT = 920.0, 440.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 20.0, 16.0, 48.0
_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = ("#2563c9", "#d2650a", "#12875c", "#8446c8", "#c8324d", "#0f8a9d", "#8a6a1f", "#5b6475")
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2230; --quiet: #667085; --rule: #e3e7ee; --paper: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --quiet: #98a2b3; --rule: #2a313c;
  --paper: #12161d } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
main { max-width: 980px; margin: 0 auto; padding: 40px 24px }
h1 { font-size: 1.5rem; margin: 0 0 .4rem } .quiet { color: var(--quiet); margin: .3rem 0 }
svg { width: 100%; height: auto } svg text { fill: var(--quiet); font-size: 13px }
.grid { stroke: var(--rule) } .line { fill: none; stroke-width: 2.2 } .printed { stroke-dasharray: 7 4 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } .scroll { overflow-x: auto }
th, td { padding: 6px 14px 6px 0; text-align: right; border-bottom: 1px solid var(--rule) }
th { color: var(--quiet); font-weight: 500; text-align: right }
"""


class BoundCurve(NamedTuple):
    """A bound in one form over one parameter."""

    name: str
    form: str
    rows: tuple[BoundRow, ...]

    @property
    def label(self) -> str:
        """Its name, with the form where it is the paper's own."""
        return self.name if self.form == "repaired" else f"{self.name} as printed"

    @property
    def values(self) -> list[float]:
        """The bound's values; inf where its formula breaks down."""
        return [row.bound.value for row in self.rows]

    def violations(self, over: str) -> Iterator[str]:
        """Yield, for each condition that fails somewhere, where it does and by how much at most."""
        found_at: dict[str, list[tuple[float, str]]] = {}
        for row in self.rows:
            for condition in row.bound.violated:
                found_at.setdefault(condition.name, []).append((row.at, condition.verdict))
        for name, found in found_at.items():
            where = _where([at for at, _ in found], [row.at for row in self.rows], over)
            yield f"{name}: violated {where}; at {over} = {found[-1][0]:g}, {found[-1][1]}"


def _where(found: list[float], grid: list[float], over: str) -> str:
    if found == grid:
        return "everywhere"
    if found == grid[-len(found) :]:
        return f"from {over} = {found[0]:g} on"
    if found == grid[: len(found)]:
        return f"up to {over} = {found[-1]:g}"
    return f"at {over} = {', '.join(f'{at:g}' for at in found)}"


def spark(values: Sequence[float]) -> str:
    """Return positive values as a line of bars on a logarithmic scale; a gap where there is none."""
    logs = [math.log10(v) if 0 < v < math.inf else None for v in values]
    known = [x for x in logs if x is not None]
    if not known:
        return "no value above zero"
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    bars = "".join(" " if x is None else _BARS[round((x - low) / span * (len(_BARS) - 1))] for x in logs)
    return f"{10**low:.3g} {bars} {10**high:.3g} (logarithmic)"


def make_page(curves: Sequence[BoundCurve], over: str, about: Sequence[str], constants: str) -> str:
    """Return the curves as one HTML page."""
    legend = " ".join(
        f'<span style="color:{_colour(curves, curve)}">{"┅" if curve.form != "repaired" else "━"} '
        f"{escape(curve.label)}</span>"
        for curve in curves
    )
    lines = "".join(f'<p class="quiet">{escape(line)}</p>' for line in about)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Bounds against {escape(over)}</title><style>{_STYLE}</style></head>
<body><main><h1>Bounds against {escape(over)}</h1>
{lines}<p>{legend}</p>
{_chart(curves, over)}
<p class="quiet">Hollow points: a condition is violated there. Gaps: the formula breaks down.</p>
<div class="scroll">{_table(curves, over)}</div>
<p class="quiet">{escape(constants)}</p>
</main></body></html>
"""


class _PlotAxis(NamedTuple):
    """Numbers to pixels, on a logarithmic scale where all are above zero."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    def __call__(self, value: float) -> float:
        low, high, at = (
            (math.log10(x) for x in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + (self.end - self.start) * share

    def ticks(self) -> list[float]:
        """Return where numbers are written."""
        if not self.log:
            return [self.low + (self.high - self.low) * i / 5 for i in range(6)]
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        every = max(1, math.ceil((last - first + 1) / 8))
        found = [10.0**k for k in range(first, last + 1, every)]
        return found if len(found) > 1 else [self.low, self.high]


def _axis(values: Sequence[float], start: float, end: float) -> _PlotAxis:
    return _PlotAxis(min(values), max(values), min(values) > 0, start, end)


def _chart(curves: Sequence[BoundCurve], over: str) -> str:
    finite = [v for curve in curves for v in curve.values if math.isfinite(v)]
    x = _axis([row.at for row in curves[0].rows], _LEFT, _WIDTH - _RIGHT)
    y = _axis(finite, _HEIGHT - _BOTTOM, _TOP)
    drawn = [
        f'<path class="grid" d="M{_LEFT} {y(v):.1f}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>'
        for v in y.ticks()
    ]
    drawn += [
        f'<text x="{x(v):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{v:.3g}</text>'
        for v in x.ticks()
    ]
    drawn.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(over)}</text>')
    for curve in curves:
        drawn += _drawn(curve, _colour(curves, curve), x, y)
    body = "\n".join(drawn)
    return f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="Bounds">{body}</svg>'


def _drawn(curve: BoundCurve, colour: str, x: _PlotAxis, y: _PlotAxis) -> list[str]:
    points = [row for row in curve.rows if math.isfinite(row.bound.value)]
    if not points:
        return []
    path = "L".join(f"{x(row.at):.1f} {y(row.bound.value):.1f}" for row in points)
    dashed = "" if curve.form == "repaired" else " printed"
    title = f"<title>{escape(curve.label)}</title>"
    line = f'<path class="line{dashed}" stroke="{colour}" d="M{path}">{title}</path>'
    return [
        line,
        *(
            f'<circle cx="{x(row.at):.1f}" cy="{y(row.bound.value):.1f}" r="3.5" stroke="{colour}" '
            f'fill="{colour if row.bound.holds else "var(--paper)"}"/>'
            for row in points
        ),
    ]


def _colour(curves: Sequence[BoundCurve], curve: BoundCurve) -> str:
    names = list(dict.fromkeys(one.name for one in curves))
    return _COLOURS[names.index(curve.name) % len(_COLOURS)]


def _table(curves: Sequence[BoundCurve], over: str) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in (over, *(curve.label for curve in curves)))
    body = []
    for index, row in enumerate(curves[0].rows):
        bounds = [curve.rows[index].bound for curve in curves]
        cells = [
            "—" if math.isinf(b.value) else f"{b.value:.4g}" if b.holds else f"({b.value:.4g})"
            for b in bounds
        ]
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in (f"{row.at:g}", *cells)) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
