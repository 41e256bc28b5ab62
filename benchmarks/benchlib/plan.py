"""How much a run of the benchmarks may do, and how it says what it does."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """Repetitions and the seconds each part may take."""

    repetitions: int
    screening: int
    screening_seconds: float
    pairs_seconds: float
    peer_seconds: float
    methods_seconds: float
    sweep_seconds: float
    quick: bool = False


FULL = Plan(20, 3, 60.0, 460.0, 160.0, 560.0, 15.0)
QUICK = Plan(5, 1, 10.0, 15.0, 10.0, 30.0, 4.0, quick=True)


@dataclass
class Log:
    """Progress on the terminal, with the time since the start; notes go into the report too."""

    started: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)

    @property
    def minutes(self) -> float:
        """Return the minutes since the start."""
        return (time.monotonic() - self.started) / 60

    def say(self, text: str) -> None:
        """Show what is being done."""
        spent = int(time.monotonic() - self.started)
        print(f"[{spent // 60:3d}:{spent % 60:02d}] {text}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Show something the reader of the report must know."""
        self.notes.append(text)
        self.say(text)


Pythons = Mapping[str, Path]
