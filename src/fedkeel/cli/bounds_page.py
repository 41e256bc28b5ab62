"""Curves of bounds: a page with inline SVG that needs no network and no script, and a line of bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from fedkeel.report.charts import ChartCurve, draw_chart, legend
from fedkeel.report.style import html_page, html_table

if TYPE_CHECKING:
    from fedkeel.theory import BoundRow

_BARS = "▁▂▃▄▅▆▇█"


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
    names = list(dict.fromkeys(curve.name for curve in curves))
    drawn = [_drawn(curve, names.index(curve.name)) for curve in curves]
    lines = "".join(f'<p class="quiet">{escape(line)}</p>' for line in about)
    body = f"""{lines}{legend(drawn)}
{_chart(drawn, over, [row.at for row in curves[0].rows])}
<p class="quiet">Hollow points: a condition is violated there. Gaps: the formula breaks down.</p>
{_table(curves, over)}
<p class="quiet">{escape(constants)}</p>"""
    return html_page(f"Bounds against {over}", body)


def _drawn(curve: BoundCurve, colour: int) -> ChartCurve:
    finite = [row for row in curve.rows if math.isfinite(row.bound.value)]
    return ChartCurve(
        curve.label,
        [(row.at, row.bound.value) for row in finite],
        colour,
        dashed=curve.form != "repaired",
        hollow=[not row.bound.holds for row in finite],
    )


def _chart(curves: Sequence[ChartCurve], over: str, grid: Sequence[float]) -> str:
    """Return the chart, on logarithmic axes where all numbers are above zero."""
    log_x = min(grid) > 0
    log_y = all(value > 0 for curve in curves for _, value in curve.points)
    return draw_chart(curves, x=over, y="bound", span_x=grid, log_x=log_x, log_y=log_y).inline()


def _table(curves: Sequence[BoundCurve], over: str) -> str:
    rows = []
    for index, row in enumerate(curves[0].rows):
        bounds = [curve.rows[index].bound for curve in curves]
        cells = [
            "—" if math.isinf(b.value) else f"{b.value:.4g}" if b.holds else f"({b.value:.4g})"
            for b in bounds
        ]
        rows.append([f"{row.at:g}", *cells])
    return html_table([over, *(curve.label for curve in curves)], rows)
