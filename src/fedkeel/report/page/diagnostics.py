"""The panels of what probes have reported: drift, and generalisation with stability."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedkeel.report.page.document import Block, Curves, Section, SmallCurves, Text

_MOVES = ("local_updates", "global_update", "clipped")
_DRIFT = ("divergence", "diversity", "cosine", "drift", *_MOVES, "switching")
_GENERALISATION = ("losses", "excess")
_LAYERS = "layers/"
_MANY = 6  # layers; more are chosen one at a time
_UNSEEN = ("cosine/error",)


def is_panelled(column: str) -> bool:
    """Tell whether a column is shown in a panel rather than among the runs' metrics."""
    return _kind(column) in (*_DRIFT, *_GENERALISATION, "layers", "clients")


def drift_section(columns: Sequence[str]) -> Section:
    """Return the panel on client drift, and what to ask for where no probe looked."""
    found = _of_kinds(columns, _DRIFT)
    blocks: list[Block] = []
    if found:
        blocks.append(SmallCurves(id="drift-curves", columns=tuple(found)))
    layers = [name for name in columns if name.startswith(_LAYERS)]
    if len(layers) > _MANY:
        blocks.append(Curves(id="layers", title="Norm of the update, layer by layer", metrics=tuple(layers)))
    elif layers:
        blocks.append(
            SmallCurves(id="layers", columns=tuple(layers), note="Norm of the global update, layer by layer.")
        )
    missing = [
        option
        for kind, option in (
            ("divergence", "divergence"),
            ("diversity", "diversity"),
            ("cosine", "cosine"),
            ("drift", "drift"),
        )
        if not _of_kinds(columns, (kind,))
    ]
    missing += [] if layers else ["layers"]
    if missing:
        asked = " ".join(f"--probe {name}" for name in missing)
        blocks.append(
            Text(id="drift-more", paragraphs=(f"Not measured in these runs; for more add `{asked}`.",))
        )
    return Section(
        id="drift",
        title="Drift",
        about="How far clients part from the global model and from each other, round by round.",
        blocks=tuple(blocks),
    )


def generalisation_section(columns: Sequence[str]) -> Section:
    """Return the panel on training against test loss; stability needs runs of its own."""
    found = _of_kinds(columns, _GENERALISATION)
    if "losses/gap" in found:  # the same numbers
        found = [name for name in found if name != "excess/generalisation"]
    blocks: list[Block] = []
    if found:
        blocks.append(SmallCurves(id="generalisation-curves", columns=tuple(found)))
    missing = [
        option
        for kind, option in (("losses", "losses"), ("excess", "excessrisk"))
        if not _of_kinds(columns, (kind,))
    ]
    hints = []
    if missing:
        asked = " ".join(f"--probe {name}" for name in missing)
        hints.append(f"Not measured in these runs; for more add `{asked}`.")
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


def _kind(column: str) -> str:
    return column.partition("/")[0]


def _of_kinds(columns: Iterable[str], kinds: Sequence[str]) -> list[str]:
    chosen = [name for name in columns if _kind(name) in kinds and name not in _UNSEEN]
    return sorted(chosen, key=lambda name: kinds.index(_kind(name)))
