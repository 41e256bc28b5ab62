"""Reports: tables of methods × seeds, a verdict with its interval, a page with curves."""

from fedkeel.report.page import page
from fedkeel.report.tables import Summary, Trial, reachable_target, summarise
from fedkeel.report.verdict import Difference, Verdict, verdict

__all__ = [
    "Difference",
    "Summary",
    "Trial",
    "Verdict",
    "page",
    "reachable_target",
    "summarise",
    "verdict",
]
