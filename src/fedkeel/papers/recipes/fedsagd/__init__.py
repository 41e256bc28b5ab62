"""FedSAGD (submitted to ICLR 2026): Tables 2–4 and 8–11, Figures 1–4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedkeel.papers.recipes.baseline_code import with_baseline_code
from fedkeel.papers.recipes.fedsagd.figures import FIGURE1, FIGURE2, FIGURE3, FIGURE4
from fedkeel.papers.recipes.fedsagd.settings import OURS, STATED
from fedkeel.papers.recipes.fedsagd.table2 import TABLE2, TABLE11, TARGETS
from fedkeel.papers.recipes.fedsagd.tables import TABLE3, TABLE4, TABLE8, TABLE9, TABLE10
from fedkeel.papers.recipes.recipe import Recipe, Settings, smoke_scale

_SMOKE_TARGETS = {
    heading: f"rounds_to:{target}"
    for data, targets in TARGETS.items()
    for heading, target in zip((f"{data} {one}" for one in targets), ("0.10", "0.20"), strict=True)
}


def _with_short_smoke(
    recipe: Recipe,
    rows: tuple[str, ...],
    own: Mapping[str, Settings] | None = None,
    measures: Mapping[str, str] | None = None,
) -> Recipe:
    """Return the recipe with a smoke scale of some rows: all of them would take long."""
    general = smoke_scale(recipe)
    assert general.setups is not None
    changed = {name: {**given, **(own or {}).get(name, {})} for name, given in general.setups.items()}
    note = f"{general.note}; without --methods only {', '.join(rows)}"
    return recipe.changed(
        smoke=replace(general, note=note, setups=changed, rows=rows, measures=measures or {})
    )


_TWELVE = ("FedAvg", "FedProx", "FedLNAG", "FedACG", OURS)
_NINE = ("FedSAGD", "FedACG", "FedLNAG")
_EIGHT = ("FedAvg", "FedAdam", "FedDyn", "FedLNAG", "FedSAGD")
_COHORTS: Mapping[str, Settings] = {
    "1": {"cohort": 1},
    "2": {"cohort": 2},
    "5": {"cohort": 5},
    "10": {"cohort": 6},
}
_REPLACING: Mapping[str, Settings] = {
    name: {"data.clients": 8, "study.held_out": 2} for name in FIGURE1.setups
}

_ALL = (
    _with_short_smoke(TABLE2, _TWELVE, measures=_SMOKE_TARGETS),
    _with_short_smoke(TABLE3, _NINE),
    _with_short_smoke(TABLE4, _NINE, _COHORTS),
    TABLE8,
    TABLE9,
    TABLE10,
    _with_short_smoke(TABLE11, _TWELVE),
    _with_short_smoke(FIGURE1, _EIGHT, _REPLACING),
    _with_short_smoke(FIGURE2, _EIGHT, _REPLACING),
    _with_short_smoke(FIGURE3, _TWELVE),
    _with_short_smoke(FIGURE4, _TWELVE),
)
RECIPES = tuple(with_baseline_code(recipe.changed(stated=STATED)) for recipe in _ALL)
