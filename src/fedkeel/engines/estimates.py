"""How long an engine may take, before it is tried: from the size of the run and what is measured already.

An estimate decides only whether an engine is worth trying. The seconds are those of a machine of 2026 with
two cores that has nothing else to do; where nothing better is known they are too small rather than too large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch

from fedkeel.core.oracle import Oracle
from fedkeel.engines.sizing import available_cores, step_flops
from fedkeel.engines.stacked import is_compiled
from fedkeel.engines.stopwatch import operations, steps_to_time
from fedkeel.settings.run_settings import RunSettings

_STEP_SECONDS, _OPERATION_SECONDS, _FLOPS_PER_SECOND = 1e-4, 1e-5, 1.5e11  # a fast machine
_FLOPS_FOR_THREADS = 5e6  # of a step; a smaller one is slower on several threads, on a busy machine much
_FLOPS_FOR_STACKED_THREADS = 5e7  # of a step of all clients
_IMPORTING, _RECORDING = 1.7, 0.04  # seconds; per operation of the model, with its derivatives: 94 took four
_COMPILER, _COMPILING = 11.0, 0.08  # seconds where nothing is compiled yet; per operation
_COMPILED_SHARE = 0.42  # that compiling leaves of the time outside matrix products; 0.26 to 0.6 were measured
_STARTING = 2.5  # seconds until worker processes run
_ROUND_TRIP = 0.01  # seconds per round between the worker processes
_MEASUREMENTS = 3  # of an engine, about


class Candidate(NamedTuple):
    """An engine on a number of threads."""

    engine: str
    threads: int

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"{self.engine} on {self.threads} thread{'s' * (self.threads > 1)}"


class EngineEstimate(NamedTuple):
    """Seconds until an engine runs, and seconds per step of one client then."""

    setup: float
    step: float


class RunSize(NamedTuple):
    """What of a run decides how long it takes.

    `steps` are those of a client in a round, `flops` those of a step, `operations` those of a forward pass;
    `timed` steps of each client are measured at once.
    """

    rounds: int
    cohort: int
    steps: int
    flops: float
    operations: int = 10
    timed: int = 8
    workers: int = 2
    compiled: bool = True

    @classmethod
    def of(cls, settings: RunSettings, oracle: Oracle, workers: int | None = None) -> RunSize:
        """Return the size of a run, the same for equal settings."""
        flops = step_flops(settings, oracle, recurrent=True)
        return cls(
            rounds=settings.rounds,
            cohort=settings.cohort_size,
            steps=settings.work.count(max(1, int(settings.federation.sizes.float().mean()))),
            flops=flops,
            operations=operations(settings, oracle),
            timed=steps_to_time(settings, flops),
            workers=workers or available_cores(),
            compiled=is_compiled(oracle.module),
        )

    @property
    def total(self) -> int:
        """Return the steps of all clients in all rounds."""
        return self.rounds * self.cohort * self.steps

    @property
    def least_seconds(self) -> float:
        """Return the seconds that serial takes at least, on a fast machine."""
        calls = _STEP_SECONDS + _OPERATION_SECONDS * self.operations
        return self.total * (calls + self.flops / _FLOPS_PER_SECOND)

    @property
    def classes(self) -> list[str]:
        """Return what runs share that take the same engine: workers, and lengths within a factor of √2."""
        return [f"{self.workers} workers", f"length {round(2 * math.log2(self.total))}"]

    def products(self, threads: int) -> float:
        """Return the seconds that the matrix products of a step take at least."""
        return self.flops / (_FLOPS_PER_SECOND * threads)


def candidates(size: RunSize, threads: int | None) -> list[Candidate]:
    """Return the engines that come into question, in the order of trying: what takes longest comes last."""
    cores, base = torch.get_num_threads(), threads or 1
    found = [Candidate("serial", base)]
    if threads is None and size.flops > _FLOPS_FOR_THREADS:
        found.append(Candidate("serial", cores))
    found.append(Candidate("stacked-uncompiled", base))
    if base == 1:
        found.append(Candidate("processes", 1))
    if size.compiled:
        found.append(Candidate("stacked", base))
        if threads is None and size.flops * size.cohort > _FLOPS_FOR_STACKED_THREADS:
            found.append(Candidate("stacked", cores))
    return list(dict.fromkeys(found))


def estimate(one: Candidate, size: RunSize, known: Mapping[Candidate, float]) -> EngineEstimate | None:
    """Return about how long a candidate takes, from seconds per step; None where it is not worth a thought.

    The first candidate, serial, must be among what is known.
    """
    if one.engine == "serial":
        return EngineEstimate(0.1, _serial(known) / one.threads)
    if one.engine == "stacked-uncompiled":  # the Python cost of a step is paid once for the cohort
        step = _serial(known) / size.cohort + size.products(one.threads)
        return EngineEstimate(_IMPORTING + _RECORDING * size.operations, step)
    if one.engine == "processes":
        share = math.ceil(size.cohort / size.workers) / size.cohort
        return EngineEstimate(_STARTING, _serial(known) * share + _ROUND_TRIP / (size.cohort * size.steps))
    return _of_compiled(one, size, known)


def measuring_seconds(one: Candidate, size: RunSize, step: float) -> float:
    """Return about how long measuring takes, where a step of one client takes that long."""
    clients = min(2, size.cohort) if one.engine == "serial" else size.cohort
    return _MEASUREMENTS * clients * size.timed * step


def _serial(known: Mapping[Candidate, float]) -> float:
    """Return the seconds of a step by serial on the fewest threads."""
    return known[min(one for one in known if one.engine == "serial")]


def _of_compiled(one: Candidate, size: RunSize, known: Mapping[Candidate, float]) -> EngineEstimate | None:
    """Compiling shortens what the uncompiled engine does beside matrix products; more threads share that."""
    setup = _COMPILER + _COMPILING * size.operations
    fewer = known.get(Candidate("stacked", 1))
    if one.threads > 1 and fewer is not None:
        return EngineEstimate(setup, fewer / one.threads)
    uncompiled = known.get(Candidate("stacked-uncompiled", one.threads))
    if uncompiled is None:
        return None
    products = min(uncompiled, size.products(one.threads))
    return EngineEstimate(setup, products + _COMPILED_SHARE * (uncompiled - products))
