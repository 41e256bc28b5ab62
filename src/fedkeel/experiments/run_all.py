"""The one loop over independent runs: what is finished is read, the rest is made where a placement says.

Comparisons, sweeps, robustness studies and recipes go through it, so all of them resume, run side by side and
show their progress in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedkeel.common.progress import RunsDone
from fedkeel.experiments.placement import ONE_BY_ONE, Placement

Row = Mapping[str, Any]
_EVERY = 1.0  # seconds between two looks at the rounds on disk


class RunResult(Protocol):
    """What a run came to: its rows, and why it diverged, if it did."""

    @property
    def rows(self) -> Sequence[Row]:
        """A row for each round."""

    @property
    def problem(self) -> str | None:
        """Why it diverged."""


Result = TypeVar("Result", bound=RunResult)
Made_co = TypeVar("Made_co", bound=RunResult, covariant=True)


class ShownRun(Protocol):
    """A run as it is shown in progress: it prints as its name."""

    @property
    def directory(self) -> Path:
        """Where it is kept."""

    @property
    def rounds(self) -> int:
        """How many rounds it has."""

    def __str__(self) -> str:
        """Return its name."""


class IndependentRun(ShownRun, Protocol[Made_co]):
    """A run that needs no other one: it has a directory of its own, and goes on from what is there."""

    @property
    def cost(self) -> float:
        """What a round of it costs, in any unit that all runs of a plan share."""

    @property
    def sendable(self) -> tuple[Callable[..., Made_co], tuple[Any, ...]]:
        """A function that makes it in another process, and what that takes."""

    def finished(self) -> Made_co | None:
        """Return its result where nothing is left to do, else None."""

    def run(self, on_row: Callable[[Row], None] | None = None) -> Made_co:
        """Make it in this process, or go on with it."""

    def rounds_done(self) -> int:
        """Return how many of its rounds are on disk; quickly, since it is asked every second."""


class RunEvents:
    """Called while runs are made; a subclass overrides what it wants to know."""

    def begin(self, runs: Sequence[ShownRun], kept: int) -> None:
        """Called once, before anything is made; so many of the runs are finished."""

    def row(self, run: ShownRun, row: Row) -> None:
        """Called after a round of a run that is made in this process."""

    def ended(self, run: ShownRun, result: Any, *, kept: bool) -> None:
        """Called when a run has ended; `kept`: it was finished before."""

    def progress(self, done: RunsDone, rounds: Mapping[Path, int]) -> None:
        """Called about every second with how far all runs are, and the rounds of each."""


class SeveralEvents(RunEvents):
    """Tells several others, in their order."""

    def __init__(self, *others: RunEvents) -> None:
        self._others = others

    def begin(self, runs: Sequence[ShownRun], kept: int) -> None:
        """Tell each."""
        for other in self._others:
            other.begin(runs, kept)

    def row(self, run: ShownRun, row: Row) -> None:
        """Tell each."""
        for other in self._others:
            other.row(run, row)

    def ended(self, run: ShownRun, result: Any, *, kept: bool) -> None:
        """Tell each."""
        for other in self._others:
            other.ended(run, result, kept=kept)

    def progress(self, done: RunsDone, rounds: Mapping[Path, int]) -> None:
        """Tell each."""
        for other in self._others:
            other.progress(done, rounds)


class RunMeter:
    """Measures how far several runs are by what they write, and estimates the time left.

    Runs differ in cost: each counts with the cost of its rounds.
    """

    def __init__(
        self, runs: Sequence[IndependentRun[Any]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runs, self._clock = {run.directory: run for run in runs}, clock
        self._ended: set[Path] = set()
        self._total = sum(run.cost * run.rounds for run in self._runs.values())
        self._started, self._at_start = clock(), 0.0

    def end(self, run: IndependentRun[Any]) -> None:
        """Count a run as done."""
        self._ended.add(run.directory)

    def begin(self) -> None:
        """Count what is there from now on as done before."""
        self._started, self._at_start = self._clock(), self._done(self.rounds())

    def rounds(self) -> dict[Path, int]:
        """Return how many rounds of each run are done."""
        return {
            directory: run.rounds if directory in self._ended else min(run.rounds_done(), run.rounds)
            for directory, run in self._runs.items()
        }

    def look(self, rounds: Mapping[Path, int] | None = None) -> RunsDone:
        """Return the progress of all runs together."""
        rounds = self.rounds() if rounds is None else rounds
        done = self._done(rounds)
        gained, spent = done - self._at_start, self._clock() - self._started
        known = gained > 0.01 * self._total and done < self._total
        left = spent * (self._total - done) / gained if known else None
        whole = sum(run.rounds for run in self._runs.values())
        return RunsDone(len(self._ended), len(self._runs), sum(rounds.values()), whole, left)

    def _done(self, rounds: Mapping[Path, int]) -> float:
        return sum(run.cost * rounds[directory] for directory, run in self._runs.items())


def run_all(
    runs: Sequence[IndependentRun[Result]],
    out: Path,
    placement: Placement = ONE_BY_ONE,
    events: RunEvents | None = None,
    order: Callable[[Any], Any] | None = None,
) -> dict[Path, Result]:
    """Make what is not finished of several runs; return the result of each by its directory.

    Runs that share a directory are made once. `order` is what those that are left are sorted by; by default
    they are made in the order of the plan.
    """
    events = events or RunEvents()
    planned = {run.directory: run for run in reversed(runs)}
    planned = {run.directory: planned[run.directory] for run in runs}
    meter, found = RunMeter(list(planned.values())), dict[Path, Result]()

    def take(directory: Path, result: Result, *, kept: bool = False) -> None:
        found[directory] = result
        meter.end(planned[directory])
        events.ended(planned[directory], result, kept=kept)

    results = {directory: run.finished() for directory, run in planned.items()}
    kept = {directory: result for directory, result in results.items() if result is not None}
    events.begin(list(planned.values()), len(kept))
    for directory, result in kept.items():
        take(directory, result, kept=True)
    meter.begin()
    look = _throttled(lambda: _tell(events, meter))
    left = [run for run in planned.values() if run.directory not in found]
    left = left if order is None else sorted(left, key=order)
    if not placement.one_by_one:
        calls = {run.directory: run.sendable for run in left}
        placement.run(_call, calls, out, take, look)
        return found
    for run in left:

        def on_row(row: Row, run: IndependentRun[Result] = run) -> None:
            events.row(run, row)
            look()

        take(run.directory, run.run(on_row))
    return found


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


def _tell(events: RunEvents, meter: RunMeter) -> None:
    rounds = meter.rounds()
    events.progress(meter.look(rounds), rounds)


def _throttled(call: Callable[[], None]) -> Callable[[], None]:
    last = time.monotonic()

    def now() -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            call()

    return now
