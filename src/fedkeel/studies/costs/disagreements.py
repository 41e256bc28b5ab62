"""Where the papers disagree with each other, with themselves, or with the count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedkeel.studies.costs.count import MethodCosts
from fedkeel.studies.costs.printed import POSTER, TABLE_9, PrintedCost, Quantity, printed_costs


class Disagreement(NamedTuple):
    """One disagreement, in words."""

    method: str
    quantity: Quantity
    text: str


def counted(line: MethodCosts, entry: PrintedCost) -> dict[str, float]:
    """Return what the count says about a printed quantity, under each way of reading it."""
    match entry.quantity:
        case "communication":
            return {"each client receives its own copy": line.unicast, "one broadcast": line.broadcast}
        case "gradients":
            return {"gradients per step": line.gradients}
        case "storage":
            return {"a model and what is kept beside it": line.stored, "held while walking": line.working}
    return {"seconds": line.seconds}


def disagreements(lines: Sequence[MethodCosts]) -> list[Disagreement]:
    """Return all disagreements about the methods counted; seconds depend on the machine and are left out."""
    found = []
    quantities: tuple[Quantity, ...] = ("communication", "gradients", "storage")
    for line in lines:
        for quantity in quantities:
            printed = printed_costs(line.method, quantity)
            found += [*_with_each_other(printed), *(d for c in printed for d in _with_the_count(line, c))]
            found += _with_itself(printed)
    return found


def _with_each_other(printed: Sequence[PrintedCost]) -> list[Disagreement]:
    """Papers disagree where no ratio is allowed by all of them."""
    if len(printed) < 2 or max(c.low for c in printed) <= min(c.high for c in printed):
        return []
    told = ", ".join(f"{entry.source} {entry.text}" for entry in printed)
    first = printed[0]
    return [Disagreement(first.method, first.quantity, f"the papers differ: {told}")]


def _with_the_count(line: MethodCosts, entry: PrintedCost) -> list[Disagreement]:
    readings = counted(line, entry)
    if any(entry.allows(value) for value in readings.values()):
        return []
    shown = ", ".join(f"{value:.2f}× ({how})" for how, value in readings.items())
    return [Disagreement(line.method, entry.quantity, f"{entry.source} prints {entry.text}; counted {shown}")]


def _with_itself(printed: Sequence[PrintedCost]) -> list[Disagreement]:
    return [
        Disagreement(c.method, c.quantity, f"{c.source} contradicts itself: {c.text}")
        for c in printed
        if c.quantity == "storage" and c.low != c.high
    ]


def conventions() -> list[str]:
    """Return how the two storage tables can be read at all."""
    return [
        f"{TABLE_9} and the poster count a model on every client, which FedAvg's clients need not keep "
        "between rounds (kept: 0); FedInit's clients must keep their last model (kept: 1), which this "
        "convention hides.",
        f"{TABLE_9} agrees with “a model and what is kept beside it”, except for FedAdam (its two extra "
        "vectors are the server's), FedSAM and FedCM (held during the walk only).",
        f"{POSTER} agrees with “held while walking”.",
        "FedSAGD's 1–1.5× is (s+2)/(s+1) of a broadcast to s clients (s = 1 gives 1.5): counted are a "
        "broadcast to the cohort, and a copy for each client.",
    ]
