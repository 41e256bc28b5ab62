"""FedSAGD (submitted to ICLR 2026): Tables 2–4 and 8–11, Figures 1–4."""

from __future__ import annotations

from fedkeel.experiments.recipes.fedsagd.table2 import TABLE2

RECIPES = (TABLE2,)
