"""What methods cost, counted in short real runs, beside what the papers print."""

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
