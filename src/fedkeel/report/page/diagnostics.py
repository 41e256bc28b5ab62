"""The panels of what probes have reported: drift, and generalisation with stability."""

from __future__ import annotations

from collections.abc import Sequence

from fedkeel.common.columns import KnownColumns, Panel, columns_by_probe
from fedkeel.report.page.document import Block, Curves, Section, SmallCurves, Text

_MANY = 6  # layers; more are chosen one at a time
_ON_DRIFT = ("divergence", "diversity", "cosine", "drift", "layers")  # probes that a page advises
_ON_GENERALISATION = ("losses", "excessrisk")


def panel_columns(columns: Sequence[str], known: KnownColumns, panel: Panel) -> list[str]:
    """Return the columns that a panel draws, as declared: fedkeel's own first, then those of other probes."""
    there = [known.describe(name) for name in columns]
    chosen = [one.name for one in there if one.panel == panel and one.same_as not in columns]
    return sorted(chosen, key=known.rank)


def drift_section(columns: Sequence[str], known: KnownColumns) -> Section:
    """Return the panel on client drift, and what to ask for where no probe looked."""
    found = panel_columns(columns, known, "drift")
    blocks: list[Block] = []
    if found:
        blocks.append(SmallCurves(id="drift-curves", columns=tuple(found)))
    layers = panel_columns(columns, known, "layers")
    if len(layers) > _MANY:
        blocks.append(Curves(id="layers", title="Norm of the update, layer by layer", metrics=tuple(layers)))
    elif layers:
        blocks.append(
            SmallCurves(id="layers", columns=tuple(layers), note="Norm of the global update, layer by layer.")
        )
    missing = _not_measured(_ON_DRIFT, [*found, *layers])
    if missing:
        blocks.append(Text(id="drift-more", paragraphs=(missing,)))
    return Section(
        id="drift",
        title="Drift",
        about="How far clients part from the global model and from each other, round by round.",
        blocks=tuple(blocks),
    )


def generalisation_section(columns: Sequence[str], known: KnownColumns) -> Section:
    """Return the panel on training against test loss; stability needs runs of its own."""
    found = panel_columns(columns, known, "generalisation")
    blocks: list[Block] = []
    if found:
        blocks.append(SmallCurves(id="generalisation-curves", columns=tuple(found)))
    missing = _not_measured(_ON_GENERALISATION, columns)
    hints = [missing] if missing else []
    hints.append(
        "How far two runs part that differ in one client or sample takes runs of its own: "
        "`fedkeel study stability`; `fedkeel report` shows its directory beside runs."
    )
    blocks.append(Text(id="generalisation-more", paragraphs=tuple(hints)))
    return Section(
        id="generalisation",
        title="Generalisation and stability",
        about="What training promises and what the test set keeps.",
        blocks=tuple(blocks),
    )


def _not_measured(probes: Sequence[str], columns: Sequence[str]) -> str:
    """Say which of these probes have reported nothing, and how to ask for them; "" where all have."""
    missing = [
        probe
        for probe in probes
        if not any(one.covers(name) for one in columns_by_probe()[probe] for name in columns)
    ]
    asked = " ".join(f"--probe {name}" for name in missing)
    return f"Not measured in these runs; for more add `{asked}`." if missing else ""
