"""Recipes: every experimental table and figure of the papers as a value, by name (`fedsagd/table2`)."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from fedkeel.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from fedkeel.experiments.recipes.recipe import Recipe

PAPERS = ("fedinit", "rethinking", "fedsagd", "beyond_smoothness")


@cache
def all_recipes() -> dict[str, Recipe]:
    """Return the recipes of all papers by name."""
    modules = [import_module(f"{__name__}.{paper}") for paper in PAPERS]
    return {recipe.name: recipe for module in modules for recipe in module.RECIPES}


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name; case, hyphens and spaces do not matter."""
    known = all_recipes()
    plain = {_plain(one): one for one in known}
    if _plain(name) not in plain:
        raise ConfigError(f"there is no recipe {name!r}; {did_you_mean(name, known)}; see `fedkeel recipes`")
    return known[plain[_plain(name)]]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == "/")
