"""Which engine, on how many threads? A rule for short runs; for longer ones a measurement, remembered.

Two equal calls must give equal bits, so nothing here may choose differently the second time. What is
measured follows from the size of the run alone; the winner is written to disk before it is used and read from
there ever after; where the disk cannot be written, the rule decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from fedkeel.engines.contract import Choice, Prospect, Setting, Unsuited
from fedkeel.engines.memo import Memo, fingerprint
from fedkeel.engines.serial import sensible_threads, step_flops
from fedkeel.engines.stopwatch import Build, seconds_a_step, steps_to_time
from fedkeel.errors import ConfigError
from fedkeel.oracle import Oracle

_MOST_SECONDS = 15.0
_MOST_SHARE = 0.05  # of the predicted run
_STEP_SECONDS, _FLOPS_A_SECOND = 1e-4, 1e11  # a fast machine: a run is predicted short rather than long
_FLOPS_FOR_THREADS = 5e6
_MARGIN = 0.9  # another engine must take less than this share of serial's time: noise decides nothing

Measure = Callable[["Candidate"], float]

_logger = logging.getLogger("fedkeel")


class Candidate(NamedTuple):
    """An engine on a number of threads, and about how many seconds it takes to measure it."""

    engine: str
    threads: int
    seconds: float

    def __str__(self) -> str:
        """Name it as in a report."""
        return f"{self.engine} on {self.threads} thread{'s' * (self.threads > 1)}"


def candidates(flops: float, cohort: int) -> list[Candidate]:
    """Return what there is to choose from, what is quickly measured first: a compiler takes its time.

    Several threads are left out where a step is small: they lose there, and on a busy machine by far.
    """
    cores = torch.get_num_threads()
    table = [
        (True, Candidate("serial", 1, 0.2)),
        (flops > _FLOPS_FOR_THREADS, Candidate("serial", cores, 0.2)),
        (True, Candidate("stacked-uncompiled", 1, 0.5)),
        (True, Candidate("stacked", 1, 5.0)),
        (True, Candidate("processes", 1, 4.0)),
        (flops * cohort > 10 * _FLOPS_FOR_THREADS, Candidate("stacked", cores, 5.0)),
    ]
    return list(dict.fromkeys(candidate for sensible, candidate in table if sensible))


def decide(
    setting: Setting,
    oracle: Oracle,
    prospect: Prospect,
    build: Build,
    *,
    threads: int | None = None,
    memo: Memo | None = None,
    measure: Measure | None = None,
) -> Choice:
    """Choose an engine for a run; log what was chosen and the figures."""
    memo = memo or Memo()
    flops = step_flops(setting, oracle)
    allowed = affordable(setting, prospect, flops, threads)
    rule = Choice("serial", threads or sensible_threads(setting, oracle))
    if setting.device.type != "cpu":
        return _logged(rule._replace(reason=f"on {setting.device} there is nothing to choose from"))
    if len(allowed) < 2:
        return _logged(rule._replace(reason="the run is too short to measure engines: rule of thumb"))
    key = fingerprint(setting, oracle, prospect, [str(one) for one in allowed])
    known = memo.read(key)
    if known is not None:
        return _logged(Choice(**known)._replace(reason="measured before on this machine, and remembered"))
    if not memo.writable():
        return _logged(rule._replace(reason=f"{memo.path} cannot be written, so no measurement could last"))
    choice = compare(
        allowed,
        measure or (lambda one: seconds_a_step(setting, prospect, Choice(one.engine, one.threads), build)),
        budget(setting, prospect, flops),
    )
    return _logged(Choice(**memo.keep(key, choice._asdict())))


def budget(setting: Setting, prospect: Prospect, flops: float) -> float:
    """Return how many seconds may go into measuring."""
    samples = int(setting.federation.sizes.float().mean())
    steps = prospect.rounds * prospect.cohort * setting.work.count(max(1, samples))
    predicted = steps * (_STEP_SECONDS + flops / _FLOPS_A_SECOND)
    return min(_MOST_SECONDS, _MOST_SHARE * predicted)


def affordable(setting: Setting, prospect: Prospect, flops: float, threads: int | None) -> list[Candidate]:
    """Return the candidates whose measurement fits in the budget; the same for equal runs."""
    left = budget(setting, prospect, flops)
    work = 4 * steps_to_time(setting, flops) * prospect.cohort * flops / _FLOPS_A_SECOND
    chosen = []
    for one in candidates(flops, prospect.cohort):
        left -= one.seconds + work
        if left < 0:
            break
        if threads is None or one.threads == threads:
            chosen.append(one)
    return chosen


def compare(
    allowed: Sequence[Candidate],
    measure: Measure,
    limit: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """Measure the candidates, serial first, until the time is up; take serial unless another is faster."""
    figures: dict[str, float | str] = {}
    times: dict[Candidate, float] = {}
    started = clock()
    for one in allowed:
        if times and clock() - started > limit:
            figures[str(one)] = "no time was left to measure it"
            continue
        try:
            times[one] = measure(one)
        except (Unsuited, ConfigError) as problem:
            figures[str(one)] = str(problem)
        else:
            figures[str(one)] = round(times[one] * 1e6, 1)
    best = min(times, key=lambda one: times[one] * (_MARGIN if one.engine == "serial" else 1.0))
    return Choice(best.engine, best.threads, "measured: the fastest step of one client", figures)


def _logged(choice: Choice) -> Choice:
    figures = "; ".join(
        f"{name}: {value if isinstance(value, str) else f'{value:g} µs a step'}"
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
