"""The second reading of papers without public code: their baselines as those baselines' authors run them."""

from __future__ import annotations

from dataclasses import replace

from fedkeel.experiments.recipes.recipe import Assumption, Reading, Recipe, Settings
from fedkeel.experiments.recipes.studies import CountedCosts

_SETTINGS: Settings = {"sampling": "bernoulli", "work.clip": 10.0, "work.clip_on": "direction"}
_ASSUMED = (
    Assumption(
        "Every local direction (gradient and correction, without the method's own α·y and weight decay) is "
        "clipped to norm 10, as the public code of FedDyn's and FedACG's authors does.",
        "work.clip",
        "work.clip_on",
    ),
    Assumption(
        "Each client takes part by itself, with the printed share as its probability, as in the public code "
        "of FedDyn's authors; clients have equal weights.",
        "sampling",
        "weighting",
    ),
)
_REPLACED = {"work.clip", "sampling"}


def with_baseline_code(recipe: Recipe) -> Recipe:
    """Return a recipe with the reading of its baselines' public code; counts alone have no other reading."""
    if all(isinstance(setup.study, CountedCosts) for setup in recipe.setups.values()):
        return recipe
    setups = {
        name: setup
        if isinstance(setup.study, CountedCosts)
        else replace(setup, settings={**setup.settings, **_SETTINGS})
        for name, setup in recipe.setups.items()
    }
    kept = tuple(one for one in recipe.assumptions if not _REPLACED & set(getattr(one, "covers", ())))
    source = (
        "the paper, and where it is silent the public code of its baselines' authors, alpemreacar/FedDyn and "
        "geehokim/FedACG: the authors' own code is not known to us."
    )
    return recipe.changed(authors=Reading(source=source, setups=setups, assumptions=(*kept, *_ASSUMED)))
