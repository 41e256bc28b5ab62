"""Rethinking regularization in federated learning: its Tables 1–4 and Figures 1–13.

`settings` has what its Tables 5 and 6 print, `tables` and `figures_…` the recipes.
"""

from __future__ import annotations

from dataclasses import replace

from fedkeel.papers.recipes.baseline_code import with_baseline_code
from fedkeel.papers.recipes.recipe import Recipe, smoke_scale
from fedkeel.papers.recipes.rethinking.figures_ablation import FIGURE11, FIGURE12, FIGURE13
from fedkeel.papers.recipes.rethinking.figures_alpha import FIGURE9, FIGURE10
from fedkeel.papers.recipes.rethinking.figures_features import FIGURE2, FIGURE3, FIGURE5
from fedkeel.papers.recipes.rethinking.figures_gradients import FIGURE1, FIGURE4
from fedkeel.papers.recipes.rethinking.figures_initialisation import FIGURE7, FIGURE8
from fedkeel.papers.recipes.rethinking.figures_scaffold import FIGURE6
from fedkeel.papers.recipes.rethinking.settings import STATED
from fedkeel.papers.recipes.rethinking.tables import TABLE1, TABLE2, TABLE3, TABLE4

_SMOKE_ROUNDS = 20  # so that the probes that report every ten rounds do so before and after a switch
_SMOKE_INIT = 'Pretrain("digits", epochs=1)'


def _with_smoke(recipe: Recipe) -> Recipe:
    """Return a figure with a scale of seconds, at which rows with settings of their own are small too."""
    general = smoke_scale(recipe)
    small = {**general.settings, "rounds": _SMOKE_ROUNDS, "eval_every": 2}
    lines = {
        row: {key: small[key] for key in setup.line(row).settings if key in small}
        for setup in recipe.setups.values()
        for row in setup.lines
    }
    for own in lines.values():
        if "model.init" in own:
            own["model.init"] = _SMOKE_INIT
    note = general.note.replace("4 rounds", f"{_SMOKE_ROUNDS} rounds")
    return recipe.changed(smoke=replace(general, note=note, settings=small, lines=lines))


def _with_few_counted(recipe: Recipe) -> Recipe:
    """Return a table with a scale of seconds, at which costs are counted in two rounds."""
    general = smoke_scale(recipe)
    return recipe.changed(smoke=replace(general, settings={**general.settings, "study.rounds": 2}))


_ALL: tuple[Recipe, ...] = (
    *(TABLE1, _with_few_counted(TABLE2), TABLE3, TABLE4),
    *(_with_smoke(FIGURE1), FIGURE2, FIGURE3, _with_smoke(FIGURE4), FIGURE5),
    *map(_with_smoke, (FIGURE6, FIGURE7, FIGURE8, FIGURE9, FIGURE10, FIGURE11, FIGURE12, FIGURE13)),
)
RECIPES = tuple(with_baseline_code(recipe.changed(stated=STATED)) for recipe in _ALL)
