"""What is measured of fedkeel alone, in this process: the methods against FedAvg, and what rounds cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from typing import Any

import torch

import fedkeel as fk
from benchlib.ours import arguments, federation, opened, session
from benchlib.plan import Log, Plan
from benchlib.race import Columns, interleave
from benchlib.stats import median
from benchlib.workloads import WORKLOADS, Workload, build_model, make_data
from fedkeel.running.session import Session

METHODS: dict[str, fk.Algorithm] = {
    "FedAvg": fk.FedAvg(),
    "FedAvg again": fk.FedAvg(),  # what the noise alone makes of a ratio
    "FedInit": fk.FedInit(),
    "FedProx": fk.FedProx(),
    "FedAvgM": fk.FedAvgM(),
    "FedAdam": fk.FedAdam(lr=0.001),
    "FedCM": fk.FedCM(),
    "FedANAG": fk.FedANAG(),
    "FedACG": fk.FedACG(),
    "FedSAGD": fk.FedSAGD(),
    "SCAFFOLD": fk.SCAFFOLD(),
    "FedDyn": fk.FedDyn(),
    "FedLNAG": fk.FedLNAG(),
    "FedSAM": fk.FedSAM(),
}
_SMALL_CNN = WORKLOADS["cnn"].with_(clients=20, cohort=2, lr=0.001)
_SHORT = 1.0


class Played:
    """A session whose rounds are timed."""

    def __init__(self, name: str, played: Session) -> None:
        self.name, self.rounds, self._rows = name, 1, played.rounds()
        first = self.turn()
        if first < _SHORT or played.context.engine.name == "stacked":  # whose first round compiles
            self.rounds = max(1, min(50, round(0.25 / self.turn())))

    def turn(self) -> float:
        """Return the seconds of a round."""
        started = time.perf_counter()
        for _ in range(self.rounds):
            next(self._rows)
        return (time.perf_counter() - started) / self.rounds


def methods(plan: Plan, log: Log, threads: int | None = None) -> dict[str, Any]:
    """Interleave rounds of every method on the CNN; two clients per round, so the server weighs five-fold."""
    workload = _SMALL_CNN.with_(cohort=1, samples=250) if plan.quick else _SMALL_CNN
    data = make_data(workload)
    with ExitStack() as stack:
        runners = {}
        for name, method in METHODS.items():
            log.say(f"methods: opening {name}")
            opened = session(workload, data, method, engine="serial", threads=threads)
            stack.enter_context(closing(opened))
            runners[name] = Played(name, opened)
        columns = _race(runners, 2 * plan.repetitions, plan.methods_seconds, log, "methods")
    return {"workload": workload.to_json(), "threads": opened.context.engine.threads, "columns": columns}


def sweeps(plan: Plan, log: Log) -> dict[str, Any]:
    """Measure what a round costs against one thing at a time."""
    axes: Mapping[str, Callable[[], dict[str, Session]]] = {
        "clients": _clients,
        "cohort": _cohorts,
        "model size": _widths,
        "workers": _workers,
        "local epochs": _epochs,
    }
    found = {}
    for axis, make in axes.items():
        log.say(f"sweep: {axis}")
        with ExitStack() as stack:
            runners = {}
            for name, opened in make().items():
                stack.enter_context(closing(opened))
                runners[name] = Played(name, opened)
            columns = _race(runners, 7, plan.sweep_seconds, log, f"sweep {axis}")
        found[axis] = {name: median(column) for name, column in columns.items()}
    return found


def _race(runners: Mapping[str, Played], repetitions: int, budget: float, log: Log, what: str) -> Columns:
    def failed(name: str, problem: Exception) -> None:
        log.note(f"{what}: {name} failed: {problem}")

    return interleave(
        runners, repetitions, budget=budget, failed=failed, report=lambda text: log.say(f"{what} {text}")
    )


def _clients() -> dict[str, Session]:
    """Populations that draw on one pool of samples, so that only their number grows."""
    workload = WORKLOADS["logistic"]
    pool = make_data(workload.with_(clients=100))
    return {
        f"{count:,} clients": _population(workload, pool, count) for count in (100, 1_000, 10_000, 100_000)
    }


def _population(workload: Workload, pool: tuple[torch.Tensor, torch.Tensor], count: int) -> Session:
    index = torch.arange(count * workload.samples) % len(pool[0])
    offsets = torch.arange(0, len(index) + 1, workload.samples)
    data = fk.Federation((pool[0], pool[1]), index=index, offsets=offsets)
    task = fk.Task(build_model(workload))
    return opened(task, data, fk.SCAFFOLD(), **arguments(workload), engine="serial")


def _cohorts() -> dict[str, Session]:
    workload = WORKLOADS["logistic"]
    data = make_data(workload)
    return {
        f"{size} per round, {engine}": session(workload.with_(cohort=size), data, engine=engine)
        for engine in ("serial", "stacked")
        for size in (1, 5, 20, 100)
    }


def _widths() -> dict[str, Session]:
    workload = WORKLOADS["logistic"].with_(epochs=5)
    data = make_data(workload)
    found = {}
    for engine in ("serial", "stacked"):
        for width in (16, 64, 256):
            task = fk.Task(fk.models.mlp(784, hidden=(width,)))
            size = sum(p.numel() for p in task.model.parameters())
            found[f"{size:,} parameters, {engine}"] = _opened(task, workload, data, engine=engine)
    return found


def _opened(
    task: fk.Task, workload: Workload, data: tuple[torch.Tensor, torch.Tensor], **options: Any
) -> Session:

    return opened(task, federation(workload, data), fk.FedAvg(), **arguments(workload), **options)


def _workers() -> dict[str, Session]:
    workload = _SMALL_CNN.with_(cohort=4)
    data = make_data(workload)
    found = {"serial, 1 thread": session(workload, data, engine="serial", threads=1)}
    found["serial, all threads"] = session(workload, data, engine="serial", threads=torch.get_num_threads())
    for count in (1, 2):
        found[f"{count} workers"] = session(workload, data, engine="processes", workers=count)
    return found


def _epochs() -> dict[str, Session]:
    """How the cost of a round that is not a step fades with more local work."""
    workload = WORKLOADS["resnet"]
    data = make_data(workload)
    return {
        f"resnet, {count} epochs": session(workload.with_(epochs=count), data, engine="serial")
        for count in (1, 5)
    }
