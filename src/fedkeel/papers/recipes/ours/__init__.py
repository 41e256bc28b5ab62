"""Recipes of our own: questions of docs/results that no table or figure of the papers asks as it is."""

from fedkeel.papers.recipes.ours.drop_outs import DROP_OUTS
from fedkeel.papers.recipes.ours.logistic import LOGISTIC, SEARCH
from fedkeel.papers.recipes.ours.one_rate import ONE_RATE
from fedkeel.papers.recipes.ours.relaxed_clipped import CLIPPED
from fedkeel.papers.recipes.ours.relaxed_forms import FORMS

RECIPES = (SEARCH, LOGISTIC, FORMS, CLIPPED, DROP_OUTS, ONE_RATE)

__all__ = ["CLIPPED", "DROP_OUTS", "FORMS", "LOGISTIC", "ONE_RATE", "RECIPES", "SEARCH"]
