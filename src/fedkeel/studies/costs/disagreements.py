"""Where the papers disagree with each other, with themselves, or with the count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedkeel.studies.costs.claims import POSTER, TABLE_9, Claim, Quantity, claims_of
from fedkeel.studies.costs.count import Line


class Finding(NamedTuple):
    """One disagreement, in words."""

    method: str
    quantity: Quantity
    text: str


def counted(line: Line, claim: Claim) -> dict[str, float]:
    """Return what the count says about a printed quantity, under each way of reading it."""
    match claim.quantity:
        case "communication":
            return {"each client receives its own copy": line.unicast, "one broadcast": line.broadcast}
        case "gradients":
            return {"gradients a step": line.gradients}
        case "storage":
            return {"a model and what is kept beside it": line.stored, "held while walking": line.working}
    return {"seconds": line.seconds}


def findings(lines: Sequence[Line]) -> list[Finding]:
    """Return all disagreements about the methods counted; seconds depend on the machine and are left out."""
    found = []
    quantities: tuple[Quantity, ...] = ("communication", "gradients", "storage")
    for line in lines:
        for quantity in quantities:
            claims = claims_of(line.method, quantity)
            found += [*_with_each_other(claims), *(f for c in claims for f in _with_the_count(line, c))]
            found += _with_itself(claims)
    return found


def _with_each_other(claims: Sequence[Claim]) -> list[Finding]:
    """Papers disagree where no ratio is allowed by all of them."""
    if len(claims) < 2 or max(c.low for c in claims) <= min(c.high for c in claims):
        return []
    told = ", ".join(f"{claim.source} {claim.text}" for claim in claims)
    first = claims[0]
    return [Finding(first.method, first.quantity, f"the papers differ: {told}")]


def _with_the_count(line: Line, claim: Claim) -> list[Finding]:
    readings = counted(line, claim)
    if any(claim.allows(value) for value in readings.values()):
        return []
    shown = ", ".join(f"{value:.2f}× ({how})" for how, value in readings.items())
    return [Finding(line.method, claim.quantity, f"{claim.source} prints {claim.text}; counted {shown}")]


def _with_itself(claims: Sequence[Claim]) -> list[Finding]:
    return [
        Finding(c.method, c.quantity, f"{c.source} contradicts itself: {c.text}")
        for c in claims
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
        "FedSAGD's 1–1.5× is (s+2)/(s+1) of a broadcast to s clients (s = 1 gives 1.5): counted are s = 10 "
        "and a copy for each client.",
    ]
