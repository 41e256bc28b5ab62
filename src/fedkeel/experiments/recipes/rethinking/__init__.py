"""Rethinking regularization in federated learning: its Tables 1–4 and Figures 1–13.

`settings` has what its Tables 5 and 6 print, `tables` and `figures_…` the recipes.
"""

from __future__ import annotations

from dataclasses import replace

from fedkeel.experiments.recipes.recipe import Recipe, smoke_scale
from fedkeel.experiments.recipes.rethinking.figures_ablation import FIGURE11, FIGURE12, FIGURE13
from fedkeel.experiments.recipes.rethinking.figures_alpha import FIGURE9, FIGURE10
from fedkeel.experiments.recipes.rethinking.figures_features import FIGURE2, FIGURE3, FIGURE5
from fedkeel.experiments.recipes.rethinking.figures_gradients import FIGURE1, FIGURE4, FIGURE6
from fedkeel.experiments.recipes.rethinking.figures_initialisation import FIGURE7, FIGURE8
from fedkeel.experiments.recipes.rethinking.tables import TABLE1, TABLE2, TABLE3, TABLE4

_SMOKE_ROUNDS = 20  # so that the probes that report every ten rounds do so before and after a switch
_SMOKE_INIT = 'Pretrain("digits", epochs=1)'


def _with_smoke(recipe: Recipe) -> Recipe:
    """Return the recipe with a scale of seconds, at which rows with settings of their own are small too."""
    general = smoke_scale(recipe)
    assert general.setups is not None
    setups = {name: general.setups[name] for name in recipe.cpu.setups or general.setups}
    small = {**general.settings, "rounds": _SMOKE_ROUNDS, "eval_every": 2, "model.init": _SMOKE_INIT}
    lines = {
        row: {key: small[key] for key in setup.line(row).settings if key in small}
        for setup in recipe.setups.values()
        for row in setup.lines
    }
    note = general.note.replace("4 rounds", f"{_SMOKE_ROUNDS} rounds")
    settings = {**small, "model.init": None}
    return recipe.changed(smoke=replace(general, note=note, settings=settings, setups=setups, lines=lines))


RECIPES: tuple[Recipe, ...] = tuple(
    _with_smoke(recipe)
    for recipe in (
        *(TABLE1, TABLE2, TABLE3, TABLE4),
        *(FIGURE1, FIGURE2, FIGURE3, FIGURE4, FIGURE5, FIGURE6, FIGURE7),
        *(FIGURE8, FIGURE9, FIGURE10, FIGURE11, FIGURE12, FIGURE13),
    )
)
