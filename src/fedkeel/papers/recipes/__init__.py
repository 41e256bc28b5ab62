"""Recipes: every experimental table and figure of the papers as a value, by name (`fedsagd/table2`)."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from fedkeel.common.errors import ConfigError

if TYPE_CHECKING:
    from fedkeel.papers.recipes.recipe import Recipe

PAPERS = ("fedinit", "poster", "rethinking", "fedsagd", "beyond_smoothness", "ours")


@cache
def all_recipes() -> dict[str, Recipe]:
    """Return the recipes of all papers by name."""
    modules = [import_module(f"{__name__}.{paper}") for paper in PAPERS]
    return {recipe.name: recipe for module in modules for recipe in module.RECIPES}


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name; case, hyphens and spaces do not matter."""
    known = all_recipes()
    found = [one for one in known if _plain(one) == _plain(name)]
    if found:
        return known[found[0]]
    of_papers = [one for one in known if _plain(one).rpartition("/")[2] == _plain(name)]
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    hint = f": say of which paper: {', '.join(of_papers)}" if of_papers else hint
    raise ConfigError(f"there is no recipe {name!r}{hint}\nlist them: fedkeel recipes")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == "/")
