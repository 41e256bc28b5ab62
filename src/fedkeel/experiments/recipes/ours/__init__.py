"""Recipes of our own: questions of docs/results that no table or figure of the papers asks as it is."""

from fedkeel.experiments.recipes.ours.drop_outs import DROP_OUTS
from fedkeel.experiments.recipes.ours.logistic import LOGISTIC, SEARCH
from fedkeel.experiments.recipes.ours.one_rate import ONE_RATE
from fedkeel.experiments.recipes.ours.relaxed_forms import FORMS

RECIPES = (SEARCH, LOGISTIC, FORMS, DROP_OUTS, ONE_RATE)

__all__ = ["DROP_OUTS", "FORMS", "LOGISTIC", "ONE_RATE", "RECIPES", "SEARCH"]
