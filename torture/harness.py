"""What a row of the torture table is, and how its tries are counted.

A row is a module of `torture/rows` with five names:

    NAME       the row's name on the command line
    FAULT      what is done to the system, in words
    MUST_HOLD  what must hold all the same
    COUNT      how many tries make the row
    run(scratch, count, seed, progress) -> Tally

A try is a pure function of the seed and its number (`rng = random_of(seed, number)`), so that each can be
repeated alone with `--try NUMBER`. `for number in progress.tries(count)` gives the numbers, draws the bar
and ends early when the minutes are over.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast


@dataclass
class Failure:
    """A try that did not hold, and what it did."""

    number: int
    what: str


@dataclass
class Tally:
    """How many tries ended how."""

    exact: int = 0  # the result is that of an undisturbed run, to the bit, or what was asked for was done
    refused: int = 0  # a clear message with the right exit code
    failures: list[Failure] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)  # what else is worth counting, by name

    @property
    def failed(self) -> int:
        """How many tries did not hold."""
        return len(self.failures)

    @property
    def tries(self) -> int:
        """How many tries there were."""
        return self.exact + self.refused + self.failed

    def note(self, name: str, count: int = 1) -> None:
        """Count something that happened beside the ending."""
        self.notes[name] = self.notes.get(name, 0) + count

    def fail(self, number: int, what: str) -> None:
        """Keep a try that did not hold."""
        self.failures.append(Failure(number, what))


class Row(Protocol):
    """A module of `torture/rows`."""

    NAME: str
    FAULT: str
    MUST_HOLD: str
    COUNT: int

    def run(self, scratch: Path, count: int, seed: int, progress: Progress) -> Tally:
        """Make the tries and tell how they ended."""
        ...


def as_row(module: ModuleType) -> Row:
    """Return a module as the row it is; a name that is missing is named."""
    missing = [name for name in ("NAME", "FAULT", "MUST_HOLD", "COUNT", "run") if not hasattr(module, name)]
    if missing:
        raise TypeError(f"{module.__name__} is no row: it has no {', '.join(missing)}")
    return cast(Row, module)


def random_of(seed: int, number: int) -> random.Random:
    """Return the randomness of a try."""
    return random.Random(f"{seed}/{number}")


class Progress:
    """Gives the numbers of the tries and says how far a row is."""

    def __init__(self, name: str, minutes: float | None = None, only: int | None = None) -> None:
        self.name, self.only = name, only
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.started = time.monotonic()
        self.shown = 0.0

    def tries(self, count: int) -> Iterator[int]:
        """Give the numbers of the tries, until all are done or the minutes are over."""
        if self.only is not None:
            yield self.only
            return
        for number in range(count):
            if self.deadline is not None and time.monotonic() > self.deadline:
                self.say(f"the minutes are over after {number} of {count}")
                return
            self._show(number, count)
            yield number

    def say(self, text: str) -> None:
        """Print a line about the row."""
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    def _show(self, number: int, count: int) -> None:
        now = time.monotonic()
        if now - self.shown >= 10:
            self.shown = now
            self.say(f"{number} of {count}, {now - self.started:.0f} s")
