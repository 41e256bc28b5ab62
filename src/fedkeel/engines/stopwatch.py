"""How long does a step of one client take on an engine?"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from fedkeel.algorithm import Algorithm
from fedkeel.engines.contract import Choice, Engine, Order, Prospect, Setting
from fedkeel.engines.serial import step_flops
from fedkeel.oracle import Oracle
from fedkeel.reducers import Mean

_STEPS = 8
_LONG = 5e8  # operations
_RUNS = 5
_ENOUGH_SECONDS = 0.3


Build = Callable[[Choice, Setting, Oracle, Prospect], Engine]


def steps_to_time(setting: Setting, flops: float) -> int:
    """Return how many steps are timed together: where steps are long, one is enough."""
    return 1 if flops > _LONG else min(_STEPS, setting.work.count(int(setting.federation.sizes[0])))


def seconds_a_step(
    setting: Setting,
    prospect: Prospect,
    choice: Choice,
    build: Build,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Let a cohort take a few steps that lead nowhere; return the least seconds a step of one client.

    What an engine does at once depends on the cohort, so it is as large as in the run, but for serial. The
    first run, which compiles and warms up, is not counted. Raises `Unsuited` where the engine cannot run it.
    """
    oracle = Oracle(setting.task, setting.device)
    steps = steps_to_time(setting, step_flops(setting, oracle))
    short = setting._replace(work=replace(setting.work, epochs=None, steps=steps))
    clients = list(range(min(prospect.cohort, 2) if choice.engine == "serial" else prospect.cohort))
    engine = build(choice, short, oracle, prospect)
    order = _order(oracle, clients)
    with closing(engine):
        engine.run(order, [order.algorithm.enlist(order.down.x)] * len(clients), Mean())
        times: list[float] = []
        started = clock()
        while len(times) < _RUNS and (not times or clock() - started < _ENOUGH_SECONDS):
            before = clock()
            engine.run(order, [order.algorithm.enlist(order.down.x)] * len(clients), Mean())
            times.append(clock() - before)
    return min(times) / (steps * len(clients))


def _order(oracle: Oracle, clients: list[int]) -> Order:
    """Return a round of FedAvg at rate zero: all of a step's work, and no way to diverge."""
    algorithm = Algorithm()
    down = algorithm.broadcast(algorithm.init(oracle.point.clone()))
    return Order(algorithm, 0, 0.0, down, oracle.buffers.clone(), clients, [1.0] * len(clients))
