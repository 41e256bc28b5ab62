"""Which form of relaxed initialisation gives FedInit's gain: what is averaged, how clients first start."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import LEVEL, RELAXATION, better
from fedkeel.papers.recipes.fedinit.settings import (
    ASSUMED_BETA,
    ASSUMED_DATA,
    ASSUMED_RULE,
    ASSUMED_WORK,
    BETA,
    SMALL,
    SMALL_NOTE,
    SMOOTHED,
    SPLITS,
    setup,
)
from fedkeel.papers.recipes.recipe import Column, PaperTable, Recipe, RecipeScale, Setup

PLAIN = "FedAvg"
MODEL_INITIAL = "end models, x⁰"  # Algorithm 1
MODEL_NONE = "end models, no offset"
WALK_INITIAL = "walks, x⁰"
WALK_NONE = "walks, no offset"
_FORMS = {
    MODEL_INITIAL: ("model", "initial"),
    MODEL_NONE: ("model", "none"),
    WALK_INITIAL: ("walk", "initial"),
    WALK_NONE: ("walk", "none"),
}
_SPLITS = (SPLITS[0], SPLITS[3])


def _setup(split: str) -> Setup:
    beta = BETA[split.split(maxsplit=1)[0]]
    forms = {
        row: f'FedInit(beta={beta:g}, first="{first}", aggregate="{aggregate}")'
        for row, (aggregate, first) in _FORMS.items()
    }
    return setup(split, lines={PLAIN: "FedAvg", **forms})


FORMS = Recipe(
    name="ours/relaxed-forms",
    title="FedInit on FedAvg: end models or walks averaged, the first start from x⁰ or without an offset",
    setups={split: _setup(split) for split in _SPLITS},
    tables=(PaperTable(tuple(Column(split, split, SMOOTHED) for split in _SPLITS)),),
    claims=(
        better("Averaging end models (Algorithm 1) improves on FedAvg", (MODEL_INITIAL, MODEL_NONE), PLAIN),
        better(
            "… by over 3 points, as in Table 6",
            (MODEL_INITIAL, MODEL_NONE),
            PLAIN,
            by=3.0,
            decided_by=(RELAXATION, *LEVEL),
        ),
        better("Averaging walks (the authors' code) improves on FedAvg", (WALK_INITIAL, WALK_NONE), PLAIN),
        better("End models are better than walks, the first start from x⁰", MODEL_INITIAL, WALK_INITIAL),
        better("The first start from x⁰ is better than none, end models", MODEL_INITIAL, MODEL_NONE),
        better("The first start from x⁰ is better than none, walks", WALK_INITIAL, WALK_NONE),
    ),
    assumptions=(*ASSUMED_DATA, *ASSUMED_WORK, *ASSUMED_BETA, *ASSUMED_RULE),
    decided_by=(RELAXATION,),
    seeds=3,
    cpu=RecipeScale(note=SMALL_NOTE.format(model="ResNet-18-GN", rounds=500), seeds=3, settings=SMALL),
)
