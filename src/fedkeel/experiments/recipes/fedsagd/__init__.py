"""FedSAGD (submitted to ICLR 2026): Tables 2–4 and 8–11, Figures 1–4."""

from __future__ import annotations

from fedkeel.experiments.recipes.fedsagd.figures import FIGURE1, FIGURE2, FIGURE3, FIGURE4
from fedkeel.experiments.recipes.fedsagd.table2 import TABLE2, TABLE11
from fedkeel.experiments.recipes.fedsagd.tables import TABLE3, TABLE4, TABLE8, TABLE9, TABLE10

RECIPES = (
    TABLE2,
    TABLE3,
    TABLE4,
    TABLE8,
    TABLE9,
    TABLE10,
    TABLE11,
    FIGURE1,
    FIGURE2,
    FIGURE3,
    FIGURE4,
)
