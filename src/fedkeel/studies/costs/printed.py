"""What the papers print about costs, entry by entry, all as ratios against FedAvg."""

from __future__ import annotations

from typing import Literal, NamedTuple

Quantity = Literal["communication", "gradients", "storage", "seconds"]

TABLE_9 = "FedInit, Table 9"
TABLE_7 = "FedInit, Table 7"
POSTER = "FedInit poster"
FEDSAGD = "FedSAGD, Table 1"


class PrintedCost(NamedTuple):
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


def _table_9() -> list[PrintedCost]:
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
    entries = []
    for method, (sent, stored) in printed.items():
        entries.append(PrintedCost(TABLE_9, method, "communication", sent, sent, f"{sent}×"))
        entries.append(PrintedCost(TABLE_9, method, "storage", stored, stored, f"{stored}×"))
    return entries


def _poster() -> list[PrintedCost]:
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
    entries = []
    for method, (sent, gradients, (low, high)) in printed.items():
        stored = f"{low}×" if low == high else f"{low}Cd, {high}×"
        entries.append(PrintedCost(POSTER, method, "communication", sent, sent, f"{sent}×"))
        entries.append(PrintedCost(POSTER, method, "gradients", gradients, gradients, f"{gradients}×"))
        entries.append(PrintedCost(POSTER, method, "storage", low, high, stored))
    return entries


def _fedsagd() -> list[PrintedCost]:
    """FedSAGD, Table 1, last column; "1 ~ 1.5×" depends on what a broadcast costs."""
    fixed = {"FedAvg": 1, "FedProx": 1, "SCAFFOLD": 2, "FedDyn": 1, "FedLNAG": 2, "FedAdam": 1}
    fixed |= {"MimeLite": 2, "FedACG": 1}
    entries = [
        PrintedCost(FEDSAGD, method, "communication", ratio, ratio, f"{ratio}×")
        for method, ratio in fixed.items()
    ]
    ranged = ("FedCM", "FedANAG", "FedSAGD")
    return entries + [PrintedCost(FEDSAGD, method, "communication", 1, 1.5, "1–1.5×") for method in ranged]


def _table_7() -> list[PrintedCost]:
    """FedInit, Table 7: seconds per round, ResNet-18-GN on CIFAR-10, in both participation settings."""
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
        PrintedCost(
            TABLE_7, method, "seconds", low, high, f"{low:g}×" if low == high else f"{low:g}–{high:g}×"
        )
        for method, (low, high) in printed.items()
    ]


PRINTED_COSTS: tuple[PrintedCost, ...] = (*_table_9(), *_poster(), *_fedsagd(), *_table_7())


def printed_costs(method: str, quantity: Quantity) -> list[PrintedCost]:
    """Return what is printed about a method."""
    return [entry for entry in PRINTED_COSTS if (entry.method, entry.quantity) == (method, quantity)]
