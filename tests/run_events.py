"""What is heard of runs while they are made."""

from __future__ import annotations

from typing import Any

from fedkeel.experiments.run_all import RunEvents


class Heard(RunEvents):
    """Keeps the name of each run that has ended, and whether it was finished before."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, bool]] = []

    def ended(self, run: Any, result: Any, *, kept: bool) -> None:
        """Keep it."""
        self.ends.append((str(run), kept))

    @property
    def kept(self) -> list[bool]:
        """Whether each was finished before."""
        return [kept for _, kept in self.ends]
