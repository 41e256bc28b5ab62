"""The second reading of papers without public code: their baselines as those baselines' authors run them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fedkeel.papers.recipes.recipe import Assumption, Line, Reading, Recipe, Settings, Setup
from fedkeel.papers.recipes.studies import CountedCosts

_SETTINGS: Settings = {"sampling": "bernoulli", "work.clip": 10.0, "work.clip_on": "direction"}
_PROXIMAL = ("FedProx", "FedACG", "FedSAGD")  # their proximal term is a part of what is clipped
_ASSUMED = (
    Assumption(
        "Every local direction is clipped to norm 10: gradient and correction, without the method's own α·y "
        "and weight decay, as in the public code of FedDyn's authors; with the proximal term for FedProx and "
        "FedACG, as in the code of FedDyn's and of FedACG's authors, and for FedSAGD, which resembles FedACG "
        "most.",
        "work.clip",
        "work.clip_on",
    ),
    Assumption(
        "Each client takes part by itself, with the printed share as its probability, as in the public code "
        "of FedDyn's authors; clients have equal weights.",
        "sampling",
        "weighting",
    ),
    "Not followed: FedACG's code decays the rate after every local epoch, and FedDyn's authors plot the mean "
    "of all clients' last models. Here the rate decays once per round, as printed, and the server's model is "
    "evaluated.",
    "Not followed: both codes augment the pictures of CIFAR. FedDyn's flips and crops with probability ½ "
    "each and pads zeros after normalisation (commit 48a19fa); FedACG's rotates by up to 10 degrees, crops "
    "and flips (62b6e95). Here the pictures are those of the printed reading.",
    "Not followed: FedACG's code draws exactly max(int(rate·C), 1) clients (base_trainer.py at 62b6e95). "
    "Here the draw is that of FedDyn's code for all methods.",
)
_REPLACED = {"work.clip", "sampling"}


def with_baseline_code(recipe: Recipe) -> Recipe:
    """Return a recipe with the reading of its baselines' public code; counts alone have no other reading."""
    if all(isinstance(setup.study, CountedCosts) for setup in recipe.setups.values()):
        return recipe
    setups = {name: _clipped(setup) for name, setup in recipe.setups.items()}
    kept = tuple(one for one in recipe.assumptions if not _REPLACED & set(getattr(one, "covers", ())))
    source = (
        "the paper, and where it is silent the public code of its baselines' authors, alpemreacar/FedDyn and "
        "geehokim/FedACG: the authors' own code is not known to us."
    )
    return recipe.changed(authors=Reading(source=source, setups=setups, assumptions=(*kept, *_ASSUMED)))


def _clipped(setup: Setup) -> Setup:
    if isinstance(setup.study, CountedCosts):
        return setup
    return replace(setup, settings={**setup.settings, **_SETTINGS}, lines=dict(_lines(setup)))


def _lines(setup: Setup) -> Iterator[tuple[str, Line]]:
    for row in setup.lines:
        line = setup.line(row)
        own = {"work.clip_on": "corrected"} if line.method.startswith(_PROXIMAL) else {}
        yield row, Line(line.method, {**line.settings, **own})
