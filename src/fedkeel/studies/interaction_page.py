"""What is shown of an interaction study: which features models share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from fedkeel.report.page.document import Axis, Chart, Section, Series, Table, Verdict

StudyTable = tuple[tuple[str, ...], list[tuple[str, ...]]]


def interaction_section(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Section:
    """Return which features models share, snapshot by snapshot."""
    headings, rows = interaction_table(found)
    series = tuple(
        Series(name=name, x=tuple(m["round"] for m in seen), y=tuple(m["features"] for m in seen))
        for name, seen in found.items()
    )
    return Section(
        id="interaction",
        title="Interaction",
        about="Which features local and global models share.",
        blocks=(
            Chart(
                id="features",
                title="Features, all models together",
                x=Axis(label="round"),
                y=Axis(label="features"),
                series=series,
                wide=True,
            ),
            Table(
                id="interaction-table",
                title="Snapshots",
                headings=headings,
                rows=tuple(rows),
                scores=True,
            ),
        ),
    )


def interaction_table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> StudyTable:
    """Return headings and a line per method and snapshot."""
    rows: list[tuple[str, ...]] = [
        (
            name,
            f"{m['round']}",
            f"{m['features']}",
            f"{m['local_current']:.1f}",
            f"{m['current_mean']}",
            f"{m['current_next']}",
            ", ".join(f"{gamma:g}: {count}" for gamma, count in m["sweep"]),
        )
        for name, seen in found.items()
        for m in seen
    ]
    shared = ("local ∩ global", "global ∩ mean", "global ∩ next")
    return ("method", "round", "features", *shared, "features by γ_corr"), rows


def interaction_verdict(
    by_method: Mapping[str, Sequence[tuple[int, Sequence[Mapping[str, Any]]]]],
) -> Verdict | None:
    """Say how many features of the global model local models keep at the last snapshot, mean over seeds."""
    last = {
        method: [seen[-1] for _, seen in seeds if seen]
        for method, seeds in by_method.items()
        if any(seen for _, seen in seeds)
    }
    if not last:
        return None
    kept = {method: fmean(one["local_current"] for one in seen) for method, seen in last.items()}
    features = {method: fmean(one["features"] for one in seen) for method, seen in last.items()}
    ranked = sorted(kept, key=lambda method: -kept[method])
    told = "; ".join(f"{name} {kept[name]:.1f} of {features[name]:g} features" for name in ranked)
    rounds = " and ".join(
        str(round) for round in sorted({one["round"] for seen in last.values() for one in seen})
    )
    most = max(map(len, last.values()))
    runs = "one run of each method" if most == 1 else f"a mean over {most} seeds"
    return Verdict(
        text=f"After round {rounds} a local model shares with the global one, on average: {told}. "
        f"That is {runs}, and no test.",
        tone="unclear" if len(last) > 1 else "",
    )
