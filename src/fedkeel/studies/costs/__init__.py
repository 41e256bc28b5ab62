"""What methods cost, counted in short real runs, beside what the papers print."""

import sys

from fedkeel.common.references import add_references
from fedkeel.studies.costs.count import MethodCosts, count, small_run
from fedkeel.studies.costs.disagreements import Disagreement, disagreements
from fedkeel.studies.costs.printed import PRINTED_COSTS, PrintedCost, Quantity

__all__ = [
    "PRINTED_COSTS",
    "Disagreement",
    "MethodCosts",
    "PrintedCost",
    "Quantity",
    "count",
    "disagreements",
    "small_run",
]

add_references("studies", sys.modules[__name__])
