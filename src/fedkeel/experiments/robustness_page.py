"""The robustness study as a section of a page, and as a table of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedkeel.report.page.document import Axis, Chart, Section, Series, Table, Text
from fedkeel.report.page.runs import short

_HEADINGS = ("attack", "method", "reducer", "accuracy", "against clean", "backdoor opens", "holds")


def robustness_section(found: Mapping[str, Any]) -> Section:
    """Return a chart per method (accuracy by attack and reducer), what backdoors do, and the table."""
    lines, methods = found["lines"], list(found["clean"])
    charts = [
        _bars(
            f"accuracy-{index}",
            f"{method}: {found['measure']}",
            [one for one in lines if one["method"] == method],
            "mean",
        )
        for index, method in enumerate(methods)
    ]
    opened = [line for line in lines if line["success"] is not None]
    if opened:
        charts.append(
            _bars("backdoor", "Part of triggered test samples that the backdoor opens for", opened, "success")
        )
    rows = robustness_rows(found)
    tones = tuple("good" if line["holds"] else "bad" for line in lines)
    table = Table(
        id="robustness-table",
        title="Every combination",
        headings=_HEADINGS,
        rows=tuple(rows),
        left=(0, 1, 2),
        tones=tones,
    )
    return Section(
        id="robustness",
        title="Robustness",
        about="Accuracy with and without hostile clients, by method and reducer; worst to best seed.",
        blocks=(*charts, Text(id="held", paragraphs=tuple(robustness_text(found)), listed=True), table),
    )


def robustness_rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a line of texts per combination, for `_HEADINGS`."""
    return [
        (
            line["attack"],
            line["method"],
            line["reducer"],
            _with_deviation(line),
            _gap(line, found["clean"][line["method"]]),
            "" if line["success"] is None else f"{100 * line['success']:.0f} %",
            "yes" if line["holds"] else "no",
        )
        for line in found["lines"]
    ]


def robustness_table(found: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and lines."""
    return _HEADINGS, robustness_rows(found)


def robustness_text(found: Mapping[str, Any]) -> list[str]:
    """Say for every attack who holds out against it."""
    points = f"{100 * found['margin']:g} points of the clean run"
    return [
        f"{attack}: {'; '.join(held) if held else 'nobody'} within {points}"
        for attack, held in found["held_by"].items()
    ]


def _bars(id: str, title: str, lines: Sequence[Mapping[str, Any]], column: str) -> Chart:
    """Return bars by attack, one series per reducer (and method, where there are several)."""
    several = len({line["method"] for line in lines}) > 1
    series: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        name = f"{line['method']}, {line['reducer']}" if several else line["reducer"]
        series.setdefault(name, []).append(line)
    return Chart(
        id=id,
        title=title,
        x=Axis(label="attack"),
        y=Axis(label="accuracy" if column == "mean" else "success", percent=True),
        series=tuple(
            Series(
                name=name,
                x=tuple(line["attack"] for line in own),
                y=tuple(short(line[column]) for line in own),
                low=tuple(short(min(_known(line), default=None)) for line in own)
                if column == "mean"
                else None,
                high=tuple(short(max(_known(line), default=None)) for line in own)
                if column == "mean"
                else None,
                kind="bars",
            )
            for name, own in series.items()
        ),
        wide=True,
    )


def _known(line: Mapping[str, Any]) -> list[float]:
    return [one for one in line["scores"] if one is not None]


def _with_deviation(line: Mapping[str, Any]) -> str:
    if line["mean"] is None:
        return "diverged"
    spread = "" if line["deviation"] is None else f" ± {100 * line['deviation']:.1f}"
    lost = f" ({line['diverged']} diverged)" if line["diverged"] else ""
    return f"{100 * line['mean']:.1f}{spread} %{lost}"


def _gap(line: Mapping[str, Any], clean: float | None) -> str:
    return "" if line["mean"] is None or clean is None else f"{100 * (line['mean'] - clean):+.1f}"
