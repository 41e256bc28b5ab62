"""Chooses the engine and its threads: by a rule for the shortest runs, for others by a cached measurement.

Serial is measured first. Another engine is tried only where the seconds that it may save, by what is known so
far, outweigh those of trying it: see `estimates`. What trying prepares (recorded and compiled steps, the fork
server) serves the run itself.

Two equal calls must give equal bits, so nothing here may choose differently the second time. The choice is
written to disk before it is used and read from there from then on; where the disk cannot be written, the rule
decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

from fedkeel.common.errors import FedkeelError
from fedkeel.core.oracle import Oracle
from fedkeel.engines.choice_cache import ChoiceCache, fingerprint
from fedkeel.engines.contract import Choice, Unsuited
from fedkeel.engines.estimates import (
    Candidate,
    EngineEstimate,
    RunSize,
    candidates,
    estimate,
    measuring_seconds,
)
from fedkeel.engines.sizing import sensible_threads
from fedkeel.engines.stopwatch import Build, Measurement, best_of, timer
from fedkeel.settings.run_settings import RunSettings

_SHORT_RUN = 0.5  # seconds on a fast machine: the rule decides
_LEAST_GAIN, _LEAST_SHARE = 1.0, 0.05  # seconds, and of the best run so far: less is not worth trying for
_LONG_SETUP = 1.0  # seconds from which starting an engine shows how fast the machine is
_MARGIN = 0.9  # another engine must take less than this share of serial's time: noise decides nothing
_FAR_BEHIND = 2.0  # times the best so far: measured once is enough
_NEAR = 1.5  # times the best: measured again, in turn with the best
_FINAL_REPETITIONS, _FINAL_SHARE = 3, 0.02  # at most so many, and that share of the run

Begin = Callable[[Candidate], AbstractContextManager[Measurement]]

_logger = logging.getLogger("fedkeel")


def decide(
    settings: RunSettings,
    oracle: Oracle,
    build: Build,
    *,
    threads: int | None = None,
    workers: int | None = None,
    cache: ChoiceCache | None = None,
    begin: Begin | None = None,
) -> Choice:
    """Choose an engine for a run; log what was chosen and the figures."""
    cache = cache or ChoiceCache()
    rule = Choice("serial", threads or sensible_threads(settings, oracle))
    if oracle.device.type != "cpu":
        return _logged(rule._replace(reason=f"on {oracle.device} there is nothing to choose from"))
    size = RunSize.of(settings, oracle, workers)
    if size.least_seconds < _SHORT_RUN:
        return _logged(rule._replace(reason="the run is too short to measure engines: rule of thumb"))
    asked = candidates(size, threads)
    key = fingerprint(settings, oracle, [*map(str, asked), *size.classes])
    known = cache.read(key)
    if known is not None:
        return _logged(Choice(**known)._replace(reason=f"{known['reason']} (cached)"))
    if not cache.writable():
        return _logged(
            rule._replace(reason=f"{cache.path} cannot be written, so a measurement could not be cached")
        )
    timed = begin or (lambda one: timer(settings, oracle.device, Choice(one.engine, one.threads), build))
    try:
        choice = compare(asked, size, timed)
    except FedkeelError as problem:  # the run will tell
        return _logged(rule._replace(reason=f"a step could not be measured: {problem}"))
    return _logged(Choice(**cache.keep(key, choice._asdict())))


def compare(
    asked: Sequence[Candidate],
    size: RunSize,
    begin: Begin,
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """Measure the first candidate, serial, and those that may save more than they cost; name the fastest."""
    comparison = _EngineComparison(size, clock)
    first, *others = asked
    with ExitStack() as open_engines:
        comparison.measure(first, open_engines.enter_context(begin(first)))
        for one in others:
            comparison.consider(one, begin, open_engines)
        best = comparison.fastest()
    return Choice(best.engine, best.threads, comparison.reason(best), comparison.figures())


class _EngineComparison:
    """The candidates' seconds per step so far, or the reasons why there are none."""

    def __init__(self, size: RunSize, clock: Callable[[], float]) -> None:
        self._size, self._clock = size, clock
        self._times: dict[Candidate, float] = {}
        self._measurements: dict[Candidate, Measurement] = {}
        self._reasons: dict[str, float | str] = {}
        self._slowness = 1.0  # of this machine, beside the one that the estimates come from

    def measure(self, one: Candidate, measurement: Measurement) -> None:
        """Measure a candidate: only once if it is far behind."""
        best = min(self._times.values(), default=float("inf"))
        self._times[one] = best_of(measurement, lambda seconds: seconds > _FAR_BEHIND * best, self._clock)
        self._measurements[one] = measurement

    def consider(self, one: Candidate, begin: Begin, open_engines: ExitStack) -> None:
        """Measure a candidate where that is worth it, else note why not."""
        why_not, started = self._not_worth_trying(one), self._clock()
        if why_not is None:
            try:
                measurement = open_engines.enter_context(begin(one))
                self._compare_with_estimate(one, self._clock() - started)
                self.measure(one, measurement)
            except (Unsuited, FedkeelError) as problem:
                why_not = str(problem)
            except Exception as problem:  # of the user's model or method, which serial can run
                why_not = f"it fails: {type(problem).__name__}: {problem}"
        if why_not is not None:
            self._reasons[str(one)] = why_not

    def fastest(self) -> Candidate:
        """Measure the two best in turn where they are near, so that both run under the same conditions."""
        finalists = sorted(self._times, key=self._score)[:2]
        repetitions: list[list[float]] = []
        end = self._clock() + _FINAL_SHARE * self._seconds(finalists[0])
        if len(finalists) < 2 or self._times[finalists[1]] > _NEAR * self._times[finalists[0]]:
            return finalists[0]
        while len(repetitions) < _FINAL_REPETITIONS and self._clock() < end:
            repetitions.append([self._measurements[one]() for one in finalists])
        if repetitions:
            self._times |= dict(zip(finalists, map(min, zip(*repetitions, strict=True)), strict=True))
        return min(finalists, key=self._score)

    def reason(self, best: Candidate) -> str:
        """Say how long the training takes by the figures, and how long it would by the first candidate."""
        first = next(iter(self._times))
        told = f"measured: about {self._seconds(best):.2g} s of training"
        return told if best == first else f"{told}, {first} about {self._seconds(first):.2g} s"

    def figures(self) -> dict[str, float | str]:
        """Return microseconds per step, or the reason why there are none."""
        return {str(one): round(seconds * 1e6, 1) for one, seconds in self._times.items()} | self._reasons

    def _not_worth_trying(self, one: Candidate) -> str | None:
        """Return why a candidate is not measured, None where it is."""
        expected = estimate(one, self._size, self._times)
        if expected is None:
            return "not measured: it is faster only where stacked-uncompiled is fast already"
        best = min(self._times.values()) * self._size.total
        gain = best - self._expected_seconds(one, expected)
        if gain > max(_LEAST_GAIN, _LEAST_SHARE * best):
            return None
        saving = f"save at most about {gain:.2g} s" if gain > 0 else "save nothing"
        return f"not measured: of about {best:.2g} s it may {saving}, what it needs to start included"

    def _expected_seconds(self, one: Candidate, expected: EngineEstimate) -> float:
        measuring = measuring_seconds(one, self._size, expected.step)
        return expected.setup * self._slowness + measuring + expected.step * self._size.total

    def _compare_with_estimate(self, one: Candidate, seconds: float) -> None:
        """Let what it took to start an engine count for the next: a slow or busy machine compiles slowly."""
        expected = estimate(one, self._size, self._times)
        if expected is not None and expected.setup > _LONG_SETUP:
            first_run = measuring_seconds(one, self._size, expected.step)
            self._slowness = max(self._slowness, seconds / (expected.setup + first_run))

    def _seconds(self, one: Candidate) -> float:
        return self._times[one] * self._size.total

    def _score(self, one: Candidate) -> float:
        """Return its seconds; serial's count for a little less."""
        return self._times[one] * (_MARGIN if one.engine == "serial" else 1.0)


def _logged(choice: Choice) -> Choice:
    figures = "; ".join(
        f"{name}: {value if isinstance(value, str) else f'{value:g} µs per step'}"
        for name, value in choice.figures.items()
    )
    _logger.info(
        "engine: %s, threads: %s (%s)%s",
        choice.engine,
        choice.threads,
        choice.reason,
        f" [{figures}]" if figures else "",
    )
    return choice
