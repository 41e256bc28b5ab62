"""Reports: tables of methods × seeds, a verdict with its intervals, a page with curves."""

from fedkeel.report.measures import FINAL, Measure, parse_measure
from fedkeel.report.ranking import Difference, Ranked
from fedkeel.report.tables import MethodSummary, Trial, reachable_target, summarise
from fedkeel.report.verdict import ComparisonVerdict, find_verdict

__all__ = [
    "FINAL",
    "ComparisonVerdict",
    "Difference",
    "Measure",
    "MethodSummary",
    "Ranked",
    "Trial",
    "find_verdict",
    "parse_measure",
    "reachable_target",
    "summarise",
]
