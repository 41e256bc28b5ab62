"""What the papers print about costs, entry by entry, all as ratios against FedAvg."""

from __future__ import annotations

from typing import Literal, NamedTuple

Quantity = Literal["communication", "gradients", "storage", "seconds"]

TABLE_9 = "FedInit, Table 9"
TABLE_7 = "FedInit, Table 7"
POSTER = "FedInit poster"
FEDSAGD = "FedSAGD, Table 1"


class Claim(NamedTuple):
    """A printed entry: who prints it, of which method, and the range it allows; `text` is as printed."""

    source: str
    method: str
    quantity: Quantity
    low: float
    high: float
    text: str

    def allows(self, value: float) -> bool:
        """Tell whether a counted ratio is what the entry says, up to rounding."""
        return self.low - 0.01 <= value <= self.high + 0.01


def _table_9() -> list[Claim]:
    """FedInit, Table 9: communication in units of N·d and storage in units of C·d."""
    printed = {
        "FedAvg": (1, 1),
        "FedAdam": (1, 2),
        "FedSAM": (1, 2),
        "SCAFFOLD": (2, 2),
        "FedDyn": (1, 2),
        "FedCM": (2, 2),
        "FedInit": (1, 1),
    }
    claims = []
    for method, (sent, stored) in printed.items():
        claims.append(Claim(TABLE_9, method, "communication", sent, sent, f"{sent}×"))
        claims.append(Claim(TABLE_9, method, "storage", stored, stored, f"{stored}×"))
    return claims


def _poster() -> list[Claim]:
    """The poster's table; its storage of FedCM reads 2Cd beside a ratio of 3×, so both are allowed."""
    printed = {
        "FedAvg": (1, 1, (1, 1)),
        "FedAdam": (1, 1, (1, 1)),
        "FedSAM": (1, 2, (2, 2)),
        "SCAFFOLD": (2, 1, (3, 3)),
        "FedDyn": (1, 1, (3, 3)),
        "FedCM": (2, 1, (2, 3)),
        "FedInit": (1, 1, (1, 1)),
    }
    claims = []
    for method, (sent, gradients, (low, high)) in printed.items():
        stored = f"{low}×" if low == high else f"{low}Cd, {high}×"
        claims.append(Claim(POSTER, method, "communication", sent, sent, f"{sent}×"))
        claims.append(Claim(POSTER, method, "gradients", gradients, gradients, f"{gradients}×"))
        claims.append(Claim(POSTER, method, "storage", low, high, stored))
    return claims


def _fedsagd() -> list[Claim]:
    """FedSAGD, Table 1, last column; "1 ~ 1.5×" depends on what a broadcast costs."""
    fixed = {"FedAvg": 1, "FedProx": 1, "SCAFFOLD": 2, "FedDyn": 1, "FedLNAG": 2, "FedAdam": 1}
    fixed |= {"MimeLite": 2, "FedACG": 1}
    claims = [
        Claim(FEDSAGD, method, "communication", ratio, ratio, f"{ratio}×") for method, ratio in fixed.items()
    ]
    ranged = ("FedCM", "FedANAG", "FedSAGD")
    return claims + [Claim(FEDSAGD, method, "communication", 1, 1.5, "1–1.5×") for method in ranged]


def _table_7() -> list[Claim]:
    """FedInit, Table 7: seconds a round, ResNet-18-GN on CIFAR-10, in both participation settings."""
    printed = {
        "FedAvg": (1.0, 1.0),
        "FedAdam": (1.10, 1.19),
        "FedSAM": (1.40, 1.56),
        "SCAFFOLD": (1.47, 1.54),
        "FedDyn": (1.23, 1.30),
        "FedCM": (1.15, 1.17),
        "FedInit": (1.02, 1.05),
    }
    return [
        Claim(TABLE_7, method, "seconds", low, high, f"{low:g}×" if low == high else f"{low:g}–{high:g}×")
        for method, (low, high) in printed.items()
    ]


CLAIMS: tuple[Claim, ...] = (*_table_9(), *_poster(), *_fedsagd(), *_table_7())


def claims_of(method: str, quantity: Quantity) -> list[Claim]:
    """Return what is printed about a method."""
    return [claim for claim in CLAIMS if (claim.method, claim.quantity) == (method, quantity)]
