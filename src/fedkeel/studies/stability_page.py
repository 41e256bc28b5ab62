"""What is shown of a stability study: how far coupled runs part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from statistics import fmean
from typing import Any

from fedkeel.report.page.document import Axis, Chart, Section, Series, Table, Text, Tone, Verdict
from fedkeel.report.page.runs import short
from fedkeel.studies.measured import several as _several

_LEVEL = 0.95
StudyTable = tuple[tuple[str, ...], list[tuple[str, ...]]]


def stability_section(found: Mapping[str, Mapping[str, Any]], *, seeds: int = 1) -> Section:
    """Return how far coupled runs part: over the rounds, within a round, and after the last one."""
    headings, rows = stability_table(found)
    first = next(iter(found.values()))
    parting = _lines({name: one["mean"] for name, one in found.items()})
    largest = _lines({name: one["largest"] for name, one in found.items()})
    local = tuple(
        line.model_copy(update={"colour": colour, "dash": dash})
        for colour, (name, each) in enumerate(found.items())
        for dash, one in enumerate(each["local"])
        for line in _lines({f"{name}, round {one['round']}": one["distances"]})
    )
    return Section(
        id="stability",
        title="Stability",
        about="How far two runs part that differ in one client or one sample.",
        blocks=(
            Chart(
                id="parting",
                title="‖x − x'‖, mean over pairs",
                x=Axis(label="round"),
                y=Axis(label="distance"),
                series=parting,
                wide=True,
            ),
            Table(
                id="stability-table",
                title="After the last round",
                headings=headings,
                rows=tuple(rows),
                scores=True,
            ),
            Text(id="stability-text", paragraphs=tuple(stability_text(first, seeds=seeds).split("\n"))),
            Chart(
                id="largest",
                title="‖x − x'‖, largest pair",
                x=Axis(label="round"),
                y=Axis(label="distance"),
                series=largest,
            ),
            Chart(
                id="local",
                title="Largest distance between two walks, by step",
                x=Axis(label="local step"),
                y=Axis(label="distance"),
                series=local,
            ),
        ),
    )


def stability_table(found: Mapping[str, Mapping[str, Any]]) -> StudyTable:
    """Return headings and a line per method: distances, losses and the gap after the last round."""
    measured = [one["round"] for one in next(iter(found.values()))["local"]]
    rows = [
        (
            name,
            f"{one['mean'][-1]:.4f}",
            f"{one['largest'][-1]:.4f}",
            f"{one['losses'][-1]['absolute']:.4f}",
            f"{one['losses'][-1]['signed']:.4f}",
            *(f"{local['distances'][-1]:.4f}" for local in one["local"]),
            f"{one['gap']:+.4f}".replace("-", "−"),
        )
        for name, one in found.items()
    ]
    local = (f"local, round {round}" for round in measured)
    return ("method", "‖x − x'‖ mean", "largest", "max |f − f'|", "max f − f'", *local, "R_u − R_e"), rows


def stability_text(found: Mapping[str, Any], *, seeds: int = 1) -> str:
    """Say what was replaced and what the columns are."""
    replaced = ", ".join(
        f"{one['client']} (first in round {one['first_round']}, {one['participations']} times)"
        for one in found["clients"]
    )
    what = "Replaced clients" if found["replaced"] == "client" else "Clients with one sample replaced"
    what += "" if seeds == 1 else " with the first seed (another seed replaces others)"
    chosen = (
        f"chosen among {found['eligible']} that are drawn within the first {found['drawn_by']} rounds and at "
        f"least {found['drawn_at_least']} times"
    )
    return (
        f"After {len(found['mean']) - 1} rounds. {what}: {replaced}; {chosen}.\n"
        "f − f': losses of the two models on a sample, mean over pairs, largest over samples (FedSAGD's "
        "Definition 3.4, and without the absolute value FedInit's Definition 11).\n"
        "local: the largest distance between two clients' models at the end of their walks in that round."
    )


def stability_verdict(by_method: Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]) -> Verdict:
    """Say whose coupled runs end closest together, and by how much, with intervals over the pairs.

    Methods are compared pair by pair, where the same clients were replaced in runs of the same seed; the
    intervals hold together.
    """
    found = {method: _pooled(seeds) for method, seeds in by_method.items()}
    ranked = sorted(found.items(), key=lambda item: item[1]["mean"][-1])
    best, first = ranked[0]
    setting = (
        f"Runs that differ in one {first['replaced']}, after {_several(len(first['mean']) - 1, 'round')}, "
        f"{_several(len(first['clients']), 'pair')}"
    )
    if len(ranked) == 1:
        return Verdict(text=f"{setting}: {best} ends {_spread(first)} apart.")
    others = [(name, *_farther(one, first, 1 - (1 - _LEVEL) / (len(ranked) - 1))) for name, one in ranked[1:]]
    told = "; ".join(
        f"{name} {gap:.3g} farther"
        + (f" ({low:+.2g} to {high:+.2g})".replace("-", "−") if low is not None else "")
        for name, gap, low, high in others
    )
    settled = all(low is not None and low > 0 for _, _, low, _ in others)
    tone: Tone = "good" if settled else "unclear"
    end = "" if settled else " Whose end closest is not settled by these pairs."
    return Verdict(text=f"{setting}: {best} ends closest, {_spread(first)} apart; {told}.{end}", tone=tone)


def _pooled(seeds: Sequence[tuple[int, Mapping[str, Any]]]) -> Mapping[str, Any]:
    """Return the pairs of all seeds as those of one study."""
    if len(seeds) == 1:
        return seeds[0][1]
    curves = [curve for _, one in seeds for curve in one["curves"]]
    rounds = list(zip(*curves, strict=True))
    return {
        "replaced": seeds[0][1]["replaced"],
        "curves": curves,
        "clients": [{"client": (seed, each["client"])} for seed, one in seeds for each in one["clients"]],
        "mean": [fmean(values) for values in rounds],
        "largest": [max(values) for values in rounds],
    }


def _spread(one: Mapping[str, Any]) -> str:
    return f"{one['mean'][-1]:.3g} (at most {one['largest'][-1]:.3g})"


def _farther(
    one: Mapping[str, Any], than: Mapping[str, Any], level: float
) -> tuple[float, float | None, float | None]:
    """Return how much farther apart runs end, with the interval over pairs of the same replaced clients."""
    replaced = [[client["client"] for client in study["clients"]] for study in (one, than)]
    gap = one["mean"][-1] - than["mean"][-1]
    if replaced[0] != replaced[1]:
        return gap, None, None
    from fedkeel.report.significance import mean_interval  # noqa: PLC0415  heavy

    gaps = [a[-1] - b[-1] for a, b in zip(one["curves"], than["curves"], strict=True)]
    interval = mean_interval(gaps, level, (-inf, inf))
    return (gap, None, None) if interval is None else (gap, *interval)


def _lines(curves: Mapping[str, Sequence[float]]) -> tuple[Series, ...]:
    return tuple(
        Series(name=name, x=tuple(range(len(values))), y=tuple(map(short, values)))
        for name, values in curves.items()
    )
