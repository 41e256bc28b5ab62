"""One cluster of several nodes on this machine: what tasks and bytes cost there, and rounds beside serial.

A process of its own: `python -m benchlib.ray_nodes JOB` writes one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

os.environ |= {  # before Ray is imported
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": os.urandom(32).hex(),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
}

import torch

from benchlib.ours import session
from benchlib.ray_estimate import MEGABYTE, Overheads, Setting, estimate
from benchlib.turns import job
from benchlib.workloads import Data, Workload, make_data
from fedkeel.engines.ray.cluster import Cluster, Demand, connect

_STORE = 600 * MEGABYTE
_SIZES = (1, 8, 44)  # MB
_MANY = 200  # tasks


def overheads(cluster: Cluster, repetitions: int) -> Overheads:
    """Measure what tasks and bytes cost."""
    demand = Demand()

    def run(tasks: int) -> None:
        for ref in [cluster.submit(nothing, demand=demand) for _ in range(tasks)]:
            cluster.get(ref)

    def travel(size: int) -> None:
        content = cluster.put(os.urandom(1024) * (1024 * size))
        cluster.get(cluster.submit(give_back, content, demand=demand))

    run(8)
    latency = _median(lambda: run(1), 6 * repetitions)
    task = _median(lambda: run(_MANY), repetitions) / _MANY
    travel(_SIZES[-1])
    times = [_median(lambda s=size: travel(s), repetitions) for size in _SIZES]
    megabyte = (times[-1] - times[0]) / (_SIZES[-1] - _SIZES[0])
    return Overheads(latency, task, megabyte)


def nothing(*_: Any) -> None:
    """Do nothing."""


def give_back(content: bytes) -> bytes:
    """Return what is given, as an upload comes back."""
    return bytes(content)


def seconds_per_round(workload: Workload, data: Data, rounds: int, **options: Any) -> tuple[float, int]:
    """Return the median seconds of a round, and the model's bytes."""
    with closing(session(workload, data, **options)) as made:
        played = made.rounds()
        for _ in range(1 + workload.warm):
            next(played)
        seconds = _median(lambda: next(played), rounds)
        return seconds, made.context.oracle.point.nbytes


@contextmanager
def local_cluster(nodes: int) -> Iterator[str]:
    """Start a head without room for clients and nodes that each run one client at a time."""
    from ray.cluster_utils import Cluster as LocalCluster  # noqa: PLC0415  after the environment is set

    head = {"num_cpus": 0, "object_store_memory": _STORE, "include_dashboard": False}
    local = LocalCluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            local.add_node(num_cpus=1, object_store_memory=_STORE)
        yield local.address
    finally:
        local.shutdown()


def measure(nodes: int, workloads: list[Workload], repetitions: int, rounds: int) -> dict[str, Any]:
    """Return overheads, and each workload's seconds per round here beside serial and the estimate."""
    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with local_cluster(nodes) as address, closing(connect(address)) as cluster:
        costs, rows = overheads(cluster, repetitions), dict[str, Any]()
        for workload in workloads:
            data = make_data(workload)
            serial, _ = seconds_per_round(workload, data, rounds, engine="serial", threads=1)
            found, size = seconds_per_round(workload, data, rounds, engine="ray", address=address, threads=1)
            step = serial / workload.cohort / workload.steps
            setting = Setting(workload.name, workload.cohort, workload.steps, step, size / MEGABYTE)
            expected = estimate(setting, costs, slots=nodes, cores=cores)
            rows[workload.name] = {"serial": serial, "ray": found, "step": step, "estimate": expected}
    return {"nodes": nodes, "overheads": costs._asdict(), "workloads": rows}


def _median(call: Callable[[], Any], times: int) -> float:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def main() -> None:
    """Measure what is asked for."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Ray prints is no answer
    given = job()
    given["workloads"] = [Workload.from_json(one) for one in given["workloads"]]
    out.write(json.dumps(measure(**given)) + "\n")
    out.close()


if __name__ == "__main__":
    main()
