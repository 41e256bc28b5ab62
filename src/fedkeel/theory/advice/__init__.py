"""Advice: what the four papers say of one run with given constants, and where practice leaves them."""

from fedkeel.theory.advice.conditions import Verdict, verdicts
from fedkeel.theory.advice.given import Given
from fedkeel.theory.advice.partings import partings
from fedkeel.theory.advice.ranges import Limit, beta_limits, global_limits, local_limits
from fedkeel.theory.advice.rounds import Prospect, as_run, best_steps

__all__ = [
    "Given",
    "Limit",
    "Prospect",
    "Verdict",
    "as_run",
    "best_steps",
    "beta_limits",
    "global_limits",
    "local_limits",
    "partings",
    "verdicts",
]
