"""Reports: tables of methods × seeds, a verdict with its interval, a page with curves."""

from fedkeel.report.page import make_page
from fedkeel.report.tables import Summary, Trial, reachable_target, summarise
from fedkeel.report.verdict import Difference, Verdict, judge

__all__ = [
    "Difference",
    "Summary",
    "Trial",
    "Verdict",
    "judge",
    "make_page",
    "reachable_target",
    "summarise",
]
