"""FedSAGD (submitted to ICLR 2026): Tables 2–4 and 8–11, Figures 1–4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedkeel.experiments.recipes.fedsagd.figures import FIGURE1, FIGURE2, FIGURE3, FIGURE4
from fedkeel.experiments.recipes.fedsagd.settings import OURS
from fedkeel.experiments.recipes.fedsagd.table2 import TABLE2, TABLE11
from fedkeel.experiments.recipes.fedsagd.tables import TABLE3, TABLE4, TABLE8, TABLE9, TABLE10
from fedkeel.experiments.recipes.recipe import Recipe, Settings, smoke_scale

_TARGETS = {
    "CIFAR-10 75": "rounds_to:0.10",
    "CIFAR-10 81": "rounds_to:0.20",
    "EMNIST 78": "rounds_to:0.10",
    "EMNIST 80": "rounds_to:0.20",
}


def _with_short_smoke(recipe: Recipe, setups: Mapping[str, Settings], rows: tuple[str, ...]) -> Recipe:
    """Return the recipe with a smoke scale of some setups and rows: all of them would take a minute."""
    general = smoke_scale(recipe)
    assert general.setups is not None
    measures = {heading: rule for heading, rule in _TARGETS.items() if recipe is TABLE2}
    short = replace(
        general,
        note=f"{general.note}; of the setups {', '.join(setups)}",
        setups={name: {**general.setups[name], **own} for name, own in setups.items()},
        rows=rows,
        measures=measures,
    )
    return recipe.changed(smoke=short)


_ON_TWO: Mapping[str, Settings] = {"emnist": {}, "cifar10": {}}
_REPLACED: Mapping[str, Settings] = {"emnist": {"data.clients": 8, "study.held_out": 2}}
_TWELVE = ("FedAvg", "FedLNAG", "FedACG", OURS)
_NINE = ("FedSAGD", "FedACG", "FedLNAG")
_EIGHT = ("FedAvg", "FedProx", "FedLNAG", "FedSAGD")

RECIPES = (
    _with_short_smoke(TABLE2, _ON_TWO, _TWELVE),
    _with_short_smoke(TABLE3, {"0.3": {}, "iid": {}}, _NINE),
    _with_short_smoke(TABLE4, {"1": {"cohort": 1}, "5": {"cohort": 5}}, _NINE),
    TABLE8,
    TABLE9,
    TABLE10,
    _with_short_smoke(TABLE11, _ON_TWO, _TWELVE),
    _with_short_smoke(FIGURE1, _REPLACED, _EIGHT),
    _with_short_smoke(FIGURE2, _REPLACED, _EIGHT),
    _with_short_smoke(FIGURE3, _ON_TWO, _TWELVE),
    _with_short_smoke(FIGURE4, _ON_TWO, _TWELVE),
)
