"""The cost ledger: what methods cost, counted in real runs, beside what the papers print."""

from fedkeel.ledger.claims import CLAIMS, Claim, Quantity
from fedkeel.ledger.count import Line, count
from fedkeel.ledger.judge import Finding, findings

__all__ = ["CLAIMS", "Claim", "Finding", "Line", "Quantity", "count", "findings"]
