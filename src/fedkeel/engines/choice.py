"""Chooses the engine and its threads: by a rule for short runs, for longer ones by a cached measurement.

Two equal calls must give equal bits, so nothing here may choose differently the second time. What is
measured follows from the size of the run alone; the choice is written to disk before it is used and read from
there from then on; where the disk cannot be written, the rule decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

import torch

from fedkeel.engines.choice_cache import ChoiceCache, fingerprint
from fedkeel.engines.contract import Choice, Unsuited
from fedkeel.engines.sizing import sensible_threads, step_flops
from fedkeel.engines.stopwatch import Build, Measurement, best_of, operations, steps_to_time, timer
from fedkeel.errors import ConfigError
from fedkeel.oracle import Oracle
from fedkeel.settings import RunSettings

_MOST_SECONDS = 15.0
_MOST_SHARE = 0.05  # of the predicted run
_STEP_SECONDS, _FLOPS_PER_SECOND = 1e-4, 1e11  # a fast machine: a run is predicted short rather than long
_FLOPS_FOR_THREADS = 5e6
_RECORDING = 0.04  # seconds per operation of the model, with its derivatives: 94 took four
_MARGIN = 0.9  # another engine must take less than this share of serial's time: noise decides nothing
_FAR_BEHIND = 2.0  # times the best so far: measured once is enough
_FINAL_REPETITIONS = 3  # measurements of the two best, in turn

Begin = Callable[["Candidate"], AbstractContextManager[Measurement]]

_logger = logging.getLogger("fedkeel")


class Candidate(NamedTuple):
    """An engine on a number of threads, and about how many seconds it takes to measure it."""

    engine: str
    threads: int
    seconds: float

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"{self.engine} on {self.threads} thread{'s' * (self.threads > 1)}"


class CandidateRule(NamedTuple):
    """When an engine, on one thread or on all, is a candidate.

    Measuring it takes about `seconds`, and `recording` more for each operation of the model. `applies` is
    called with a step's floating-point operations and the cohort. An engine that suits some tasks only raises
    `Unsuited` when it is built, which takes no time and is listed among the figures.
    """

    engine: str
    seconds: float
    recording: float = 0.0
    all_threads: bool = False
    applies: Callable[[float, int], bool] = lambda flops, cohort: True


def _long(flops: float, cohort: int) -> bool:
    return flops > _FLOPS_FOR_THREADS


def _long_together(flops: float, cohort: int) -> bool:
    return flops * cohort > 10 * _FLOPS_FOR_THREADS


# What is quickly measured comes first: compiling takes seconds. Several threads are left out where a step
# is small: they are slower there, and on a busy machine much slower.
RULES = (
    CandidateRule("serial", 0.2),
    CandidateRule("serial", 0.2, all_threads=True, applies=_long),
    CandidateRule("stacked-uncompiled", 0.5, _RECORDING),
    CandidateRule("stacked", 5.0, _RECORDING),
    CandidateRule("processes", 4.0),
    CandidateRule("stacked", 5.0, _RECORDING, all_threads=True, applies=_long_together),
)


def candidates(flops: float, cohort: int, count: int = 0) -> list[Candidate]:
    """Return the candidates for a model of `count` operations, in the order of the rules."""
    cores = torch.get_num_threads()
    found = [
        Candidate(rule.engine, cores if rule.all_threads else 1, rule.seconds + rule.recording * count)
        for rule in RULES
        if rule.applies(flops, cohort)
    ]
    return list(dict.fromkeys(found))


def decide(
    settings: RunSettings,
    oracle: Oracle,
    build: Build,
    *,
    threads: int | None = None,
    cache: ChoiceCache | None = None,
    begin: Begin | None = None,
) -> Choice:
    """Choose an engine for a run; log what was chosen and the figures."""
    cache = cache or ChoiceCache()
    flops = step_flops(settings, oracle, recurrent=True)
    allowed = affordable(settings, flops, threads, operations(settings, oracle))
    rule = Choice("serial", threads or sensible_threads(settings, oracle))
    if oracle.device.type != "cpu":
        return _logged(rule._replace(reason=f"on {oracle.device} there is nothing to choose from"))
    if len(allowed) < 2:
        return _logged(rule._replace(reason="the run is too short to measure engines: rule of thumb"))
    key = fingerprint(settings, oracle, [str(one) for one in allowed])
    known = cache.read(key)
    if known is not None:
        return _logged(Choice(**known)._replace(reason="measured before on this machine (cached)"))
    if not cache.writable():
        return _logged(
            rule._replace(reason=f"{cache.path} cannot be written, so a measurement could not be cached")
        )
    choice = compare(
        allowed,
        begin or (lambda one: timer(settings, oracle.device, Choice(one.engine, one.threads), build)),
        budget(settings, flops),
    )
    return _logged(Choice(**cache.keep(key, choice._asdict())))


def budget(settings: RunSettings, flops: float) -> float:
    """Return how many seconds may go into measuring."""
    samples = int(settings.federation.sizes.float().mean())
    steps = settings.rounds * settings.cohort_size * settings.work.count(max(1, samples))
    predicted = steps * (_STEP_SECONDS + flops / _FLOPS_PER_SECOND)
    return min(_MOST_SECONDS, _MOST_SHARE * predicted)


def affordable(settings: RunSettings, flops: float, threads: int | None, count: int = 0) -> list[Candidate]:
    """Return the candidates whose measurement fits in the budget; the same for equal runs."""
    left = budget(settings, flops)
    work = 4 * steps_to_time(settings, flops) * settings.cohort_size * flops / _FLOPS_PER_SECOND
    chosen = []
    for one in candidates(flops, settings.cohort_size, count):
        if one.seconds + work <= left and threads in {None, one.threads}:
            left -= one.seconds + work
            chosen.append(one)
    return chosen


def compare(
    allowed: Sequence[Candidate],
    begin: Begin,
    limit: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """Measure the candidates while there is time, the two best once more in turn; name the fastest.

    The first, serial, is measured whatever it takes, and stays unless another is clearly faster.
    """
    comparison = _EngineComparison(limit, clock)
    with ExitStack() as open_engines:
        for one in allowed:
            comparison.measure(one, begin, open_engines)
        best = comparison.fastest()
    return Choice(best.engine, best.threads, "measured: the fastest step of one client", comparison.figures())


class _EngineComparison:
    """Candidates and their times so far. The limit is checked before whatever takes time."""

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._clock, self._end = clock, clock() + limit
        self._times: dict[Candidate, float] = {}
        self._measurements: dict[Candidate, Measurement] = {}
        self._reasons: dict[str, float | str] = {}

    def measure(self, one: Candidate, begin: Begin, open_engines: ExitStack) -> None:
        """Measure a candidate, or note why not: only once if it is far behind or was built too late."""
        self._reasons[str(one)] = "no time was left to measure it"
        if self._times and self._left() < one.seconds:
            return
        try:
            measurement = open_engines.enter_context(begin(one))
        except (Unsuited, ConfigError) as problem:
            self._reasons[str(one)] = str(problem)
            return
        best = min(self._times.values(), default=float("inf"))
        self._times[one] = best_of(
            measurement, lambda seconds: seconds > _FAR_BEHIND * best or self._left() < 0, self._clock
        )
        self._measurements[one] = measurement

    def fastest(self) -> Candidate:
        """Measure the two best in turn where there is time, so that both run under the same conditions."""
        finalists = sorted(self._times, key=self._score)[:2]
        repetitions: list[list[float]] = []
        while len(finalists) == 2 and len(repetitions) < _FINAL_REPETITIONS and self._left() > 0:
            repetitions.append([self._measurements[one]() for one in finalists])
        if repetitions:
            self._times |= dict(zip(finalists, map(min, zip(*repetitions, strict=True)), strict=True))
        return min(finalists, key=self._score)

    def figures(self) -> dict[str, float | str]:
        """Return microseconds per step, or the reason why there are none, in the order of measuring."""
        measured = {str(one): round(seconds * 1e6, 1) for one, seconds in self._times.items()}
        return self._reasons | measured

    def _score(self, one: Candidate) -> float:
        """Return its seconds; serial's count for a little less."""
        return self._times[one] * (_MARGIN if one.engine == "serial" else 1.0)

    def _left(self) -> float:
        return self._end - self._clock()


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
