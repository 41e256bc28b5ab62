"""FedInit (Sun, Shen and Tao): its Tables 4 to 9 and Figures 1 and 2 as recipes."""

from __future__ import annotations

from fedkeel.papers.recipes.fedinit.accuracy import TABLE_4, TABLE_5, TABLE_6
from fedkeel.papers.recipes.fedinit.costs import TABLE_9
from fedkeel.papers.recipes.fedinit.divergence import FIGURE_2A, FIGURE_2B, FIGURE_2C, FIGURE_2D
from fedkeel.papers.recipes.fedinit.sensitivity import FIGURE_1A, FIGURE_1B
from fedkeel.papers.recipes.fedinit.timing import TABLE_7, TABLE_8
from fedkeel.papers.recipes.recipe import Recipe

RECIPES: tuple[Recipe, ...] = (
    TABLE_4,
    TABLE_5,
    TABLE_6,
    TABLE_7,
    TABLE_8,
    TABLE_9,
    FIGURE_1A,
    FIGURE_1B,
    FIGURE_2A,
    FIGURE_2B,
    FIGURE_2C,
    FIGURE_2D,
)
