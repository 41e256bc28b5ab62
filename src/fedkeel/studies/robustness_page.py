"""The robustness study as a section of a page, and as a table of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedkeel.report.measures import Measure, parse_measure
from fedkeel.report.page.document import Axis, Chart, Section, Series, Table, Text, Tone, Verdict
from fedkeel.report.page.runs import short
from fedkeel.studies.measured import several as _several

Grid = tuple[tuple[str, ...], list[tuple[str, ...]]]

_HEADINGS = ("attack", "method", "reducer", "{score}", "against clean", "backdoor opens", "holds")


def _measure(found: Mapping[str, Any]) -> Measure:
    """Return what runs are scored by; of version 0.1 it was an accuracy."""
    return parse_measure(found.get("rule", "final"))


def _margin(found: Mapping[str, Any]) -> str:
    share = _measure(found).percent
    return f"{100 * found['margin']:g} {'points' if share else '%'}"


def robustness_section(found: Mapping[str, Any]) -> Section:
    """Return a chart per method (accuracy by attack and reducer), what backdoors do, and the table."""
    lines, methods, measure = found["lines"], list(found["clean"]), _measure(found)
    charts = [
        _bars(
            measure,
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
            _bars(
                measure,
                "backdoor",
                "Part of triggered test samples that the backdoor opens for",
                opened,
                "success",
            )
        )
    rows = robustness_rows(found)
    tones = tuple("good" if line["holds"] else "bad" for line in lines)
    table = Table(
        id="robustness-table",
        scores=True,
        title="Every combination",
        headings=tuple(name.format(score=measure.metric) for name in _HEADINGS),
        rows=tuple(rows),
        left=(0, 1, 2),
        tones=tones,
    )
    return Section(
        id="robustness",
        title="Robustness",
        about="Scores with and without hostile clients, by method and reducer; worst to best seed.",
        blocks=(
            *charts,
            Text(id="held", paragraphs=tuple(robustness_text(found)), listed=True),
            *_grid_tables(found),
            table,
        ),
    )


def _grid_tables(found: Mapping[str, Any]) -> list[Table]:
    return [
        Table(
            id=f"robustness-grid-{index}",
            title=f"{method}: {found['measure']}{' in per cent' * _measure(found).percent}",
            headings=headings,
            rows=tuple(rows),
            left=(0,),
        )
        for index, (method, (headings, rows)) in enumerate(robustness_grids(found).items())
    ]


def robustness_rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a line of texts per combination, for `_HEADINGS`."""
    measure = _measure(found)
    return [
        (
            line["attack"],
            line["method"],
            line["reducer"],
            _with_deviation(line, measure),
            _gap(line, found["clean"][line["method"]], measure),
            "" if line["success"] is None else f"{100 * line['success']:.0f} %",
            "yes" if line["holds"] else "no",
        )
        for line in found["lines"]
    ]


def robustness_grids(found: Mapping[str, Any]) -> dict[str, Grid]:
    """Return a grid of texts for each method: a line per attack, a column per reducer."""
    reducers = tuple(dict.fromkeys(line["reducer"] for line in found["lines"]))
    grids: dict[str, Grid] = {}
    measure = _measure(found)
    for method in found["clean"]:
        own = [line for line in found["lines"] if line["method"] == method]
        cells = {(line["attack"], line["reducer"]): _cell(line, measure) for line in own}
        attacks = dict.fromkeys(line["attack"] for line in own)
        rows = [(attack, *(cells[attack, reducer] for reducer in reducers)) for attack in attacks]
        grids[method] = (("attack", *reducers), rows)
    return grids


def robustness_text(found: Mapping[str, Any]) -> list[str]:
    """Say for every attack with which reducers each method holds out against it."""
    worse = "below" if _measure(found).sign > 0 else "above"
    told = [
        f"{attack}: "
        + "; ".join(f"{method} with {', '.join(held) or 'none'}" for method, held in of_attack.items())
        for attack, of_attack in found["held_by"].items()
    ]
    return [
        f"✗ does not hold: more than {_margin(found)} {worse} the same method with the mean and no attack, "
        f"a seed diverged, or a backdoor opens for a fifth of the samples. Mean ± standard deviation over "
        f"{len(found['seeds'])} seeds.",
        "What holds out:",
        *told,
    ]


def _bars(measure: Measure, id: str, title: str, lines: Sequence[Mapping[str, Any]], column: str) -> Chart:
    """Return bars with one series per reducer: scores by attack, or backdoors by method."""
    series: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        series.setdefault(line["reducer"], []).append(line)
    scored = column == "mean"
    several = not scored and len({line["attack"] for line in lines}) > 1
    return Chart(
        id=id,
        title=title,
        x=Axis(label="attack" if scored else "method"),
        y=Axis(label=measure.metric if scored else "success", percent=not scored or measure.percent),
        series=tuple(
            Series(
                name=name,
                x=tuple(
                    line["attack"]
                    if scored
                    else f"{line['method']}, {line['attack']}"
                    if several
                    else line["method"]
                    for line in own
                ),
                y=tuple(short(line[column]) for line in own),
                low=_ends(own, min) if scored else None,
                high=_ends(own, max) if scored else None,
                kind="bars",
            )
            for name, own in series.items()
        ),
        wide=True,
    )


def _ends(lines: Sequence[Mapping[str, Any]], end: Callable[..., Any]) -> tuple[float | None, ...]:
    """Return the worst or the best seed of each line."""
    return tuple(short(end(_known(line), default=None)) for line in lines)


def _known(line: Mapping[str, Any]) -> list[float]:
    return [one for one in line["scores"] if one is not None]


def _cell(line: Mapping[str, Any], measure: Measure) -> str:
    """Return score and deviation, how often a backdoor opens, and whether it does not hold."""
    opens = "" if line["success"] is None else f", opens {100 * line['success']:.0f} %"
    return f"{_with_deviation(line, measure).replace(' %', '')}{opens}{'' if line['holds'] else ' ✗'}"


def _with_deviation(line: Mapping[str, Any], measure: Measure) -> str:
    if line["mean"] is None:
        return "diverged"
    lost = f" ({line['diverged']} diverged)" if line["diverged"] else ""
    return f"{measure.shown(line['mean'], line['deviation'])}{lost}"


def _gap(line: Mapping[str, Any], clean: float | None, measure: Measure) -> str:
    if line["mean"] is None or clean is None:
        return ""
    gap = line["mean"] - clean
    return f"{100 * gap:+.1f}" if measure.percent else f"{gap:+.3g}"


def robustness_verdict(found: Mapping[str, Any]) -> Verdict:
    """Say with which reducers each method holds out against every attack."""
    held_by = found["held_by"]
    methods = {
        method: [
            reducer
            for reducer in dict.fromkeys(line["reducer"] for line in found["lines"])
            if all(reducer in held[method] for held in held_by.values())
        ]
        for method in found["clean"]
    }
    told = "; ".join(f"{method} with {', '.join(held) or 'none'}" for method, held in methods.items())
    attacks = _several(len(held_by), "attack")
    tone: Tone = "good" if all(methods.values()) else "bad" if not any(methods.values()) else "unclear"
    return Verdict(
        text=f"What holds out against {'all ' * (len(held_by) > 1)}{attacks}, within "
        f"{_margin(found)} over {_several(len(found['seeds']), 'seed')}: {told}.",
        tone=tone,
    )
