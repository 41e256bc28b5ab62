"""Curves of bounds: a page, and a line of bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fedkeel.report.page.document import Axis, Block, Chart, Document, Section, Series, Table, Text

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


def bounds_document(
    curves: Sequence[BoundCurve], over: str, about: Sequence[str], constants: str
) -> Document:
    """Return the curves as a page, on logarithmic axes where all numbers are above zero."""
    names = list(dict.fromkeys(curve.name for curve in curves))
    grid = [row.at for row in curves[0].rows]
    finite = [value for curve in curves for value in curve.values if math.isfinite(value)]
    chart = Chart(
        id="bounds-chart",
        title=f"Bounds against {over}",
        x=Axis(label=over, log=min(grid) > 0),
        y=Axis(label="bound", log=bool(finite) and min(finite) > 0),
        series=tuple(_series(curve, names.index(curve.name)) for curve in curves),
        note="Hollow points: a condition is violated there. Gaps: the formula breaks down.",
        wide=True,
    )
    violated = [f"{curve.label}: {text}" for curve in curves for text in curve.violations(over)]
    told = Text(id="about", paragraphs=tuple(about), listed=True)
    blocks: list[Block] = [chart, told, _table(curves, over)]
    if violated:
        blocks.append(Text(id="violated", paragraphs=tuple(violated), listed=True))
    return Document(
        title=f"Bounds against {over}",
        kind="bounds",
        sections=(
            Section(id="bounds", title="Bounds", blocks=tuple(blocks)),
            Section(
                id="constants",
                title="Constants",
                blocks=(Text(id="constants-list", paragraphs=(constants,)),),
            ),
        ),
    )


def _series(curve: BoundCurve, colour: int) -> Series:
    return Series(
        name=curve.label,
        x=tuple(row.at for row in curve.rows),
        y=tuple(row.bound.value if math.isfinite(row.bound.value) else None for row in curve.rows),
        hollow=tuple(not row.bound.holds for row in curve.rows),
        colour=colour,
        dash=(2 * (colour // 10) + (curve.form != "repaired")) % 5,  # ten colours, then other dashes
    )


def _table(curves: Sequence[BoundCurve], over: str) -> Table:
    rows = []
    for index, row in enumerate(curves[0].rows):
        bounds = [curve.rows[index].bound for curve in curves]
        cells = [
            "—" if math.isinf(b.value) else f"{b.value:.4g}" if b.holds else f"({b.value:.4g})"
            for b in bounds
        ]
        rows.append((f"{row.at:g}", *cells))
    headings = (over, *(curve.label for curve in curves))
    note = "In parentheses: the formula's number where a condition is violated."
    return Table(
        id="bounds-table", title="The same in numbers", headings=headings, rows=tuple(rows), note=note
    )
