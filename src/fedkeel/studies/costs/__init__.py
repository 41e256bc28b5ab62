"""The cost ledger: what methods cost, counted in real runs, beside what the papers print."""

from fedkeel.studies.costs.claims import CLAIMS, Claim, Quantity
from fedkeel.studies.costs.count import Line, count
from fedkeel.studies.costs.disagreements import Finding, findings

__all__ = ["CLAIMS", "Claim", "Finding", "Line", "Quantity", "count", "findings"]
