"""Reports: tables of methods × seeds, a verdict with its interval, a page with curves."""

from fedkeel.report.page import make_page
from fedkeel.report.tables import MethodSummary, Trial, reachable_target, summarise
from fedkeel.report.verdict import ComparisonVerdict, Difference, find_verdict

__all__ = [
    "ComparisonVerdict",
    "Difference",
    "MethodSummary",
    "Trial",
    "find_verdict",
    "make_page",
    "reachable_target",
    "summarise",
]
