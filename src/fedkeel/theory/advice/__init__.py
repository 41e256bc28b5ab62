"""Advice: what the four papers say about one run with known constants, and where practice differs."""

from fedkeel.theory.advice.caveats import caveats
from fedkeel.theory.advice.conditions import TheoremCheck, theorem_checks
from fedkeel.theory.advice.inputs import AdviceInputs
from fedkeel.theory.advice.ranges import Limit, beta_limits, global_limits, local_limits
from fedkeel.theory.advice.rounds import PredictedRounds, as_run, best_steps

__all__ = [
    "AdviceInputs",
    "Limit",
    "PredictedRounds",
    "TheoremCheck",
    "as_run",
    "best_steps",
    "beta_limits",
    "caveats",
    "global_limits",
    "local_limits",
    "theorem_checks",
]
