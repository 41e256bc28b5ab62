"""Measures how long a step of one client takes on an engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedkeel.core.oracle import Oracle
from fedkeel.engines.contract import Choice, Engine, RoundRequest
from fedkeel.engines.sizing import first_batch, step_flops
from fedkeel.reducers import Mean
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import ClientMemory
from fedkeel.tensors.trees import call

_STEPS = 8
_LONG_STEP = 5e8  # operations
_SHORT_RUN = 1e8  # operations; of short steps more are timed, since the first costs of a walk count for all
_REPETITIONS = 5
_ENOUGH_SECONDS = 0.3
_SMALL_RATE = 1e-6  # of the run's; not zero, for methods divide by the length of a walk

Build = Callable[[Choice, RunSettings, Oracle], Engine]
Measurement = Callable[[], float]  # runs a cohort once and returns the seconds per step of one client


def steps_to_time(settings: RunSettings, flops: float) -> int:
    """Return how many steps are timed together: where steps are long, one is enough."""
    if flops > _LONG_STEP:
        return 1
    steps = max(_STEPS, int(_SHORT_RUN / max(1.0, flops)))
    return min(steps, settings.work.count(int(settings.federation.sizes[0])))


class _OperationCounter(TorchFunctionMode):
    """Counts the functions inside its block that give tensors.

    `TorchDispatchMode` would see more, but imports torch's compiler: more than a second.
    """

    count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        first = result[0] if isinstance(result, tuple) and result else result
        self.count += isinstance(first, Tensor)
        return result


def operations(settings: RunSettings, oracle: Oracle) -> int:
    """Return about how many operations a forward pass has: the more, the longer recording a step takes."""
    inputs, _ = oracle.to_device(first_batch(settings, limit=2))
    counter, model = _OperationCounter(), oracle.eval_copy
    with torch.no_grad(), counter:
        call(model, inputs)
    return counter.count


@contextmanager
def timer(
    settings: RunSettings,
    device: torch.device,
    choice: Choice,
    build: Build,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Measurement]:
    """Build an engine; yield a function that times a few steps of a cohort by the run's own method.

    So the run finds recorded and compiled what it needs. How many clients an engine runs at once depends on
    the cohort, so it is as large as in the run, except for serial. The first run, which compiles and warms
    up, is not timed. Raises `Unsuited` where the engine does not suit the task.
    """
    oracle = Oracle(settings.task, device)
    steps = steps_to_time(settings, step_flops(settings, oracle, recurrent=True))
    schedule = _steady if settings.work.varies_within_round else None
    work = replace(settings.work, epochs=None, steps=steps, schedule=schedule)
    short = settings.changed(work=work, reducer=Mean(), faults=None)
    cohort = settings.cohort_size
    clients = list(range(min(cohort, 2) if choice.engine == "serial" else cohort))
    request = _request(settings, oracle, clients)
    memory = ClientMemory(request.algorithm.init_client(request.down.x))

    def measure() -> float:
        before = clock()
        engine.run(request, [memory] * len(clients))
        return (clock() - before) / (steps * len(clients))

    with closing(build(choice, short, oracle)) as engine:
        measure()
        yield measure


def best_of(measure: Measurement, enough: Callable[[float], bool], clock: Callable[[], float]) -> float:
    """Return the least seconds of a few repetitions: fewer if they are long, or if one is `enough`."""
    started, best = clock(), measure()
    for _ in range(_REPETITIONS - 1):
        if enough(best) or clock() - started > _ENOUGH_SECONDS:
            break
        best = min(best, measure())
    return best


def _request(settings: RunSettings, oracle: Oracle, clients: list[int]) -> RoundRequest:
    """Return the first round of a run, at a rate so small that it cannot diverge."""
    algorithm = settings.played_stages.parts[0].method
    down = algorithm.broadcast(algorithm.init(oracle.point.clone()))
    lr, buffers, weights = _SMALL_RATE * settings.work.lr, oracle.buffers.clone(), [1.0] * len(clients)
    return RoundRequest(algorithm, 0, lr, down, buffers, clients, weights, rate_factor=_SMALL_RATE)


def _steady(round: int, rounds: int, step: int, steps: int) -> float:
    """Stand in for a schedule within a round: the step is the same, and its rates are never zero."""
    return 1.0
