"""What Ray costs: `python benchmarks/ray_rounds.py` (needs fedkeel[ray]); writes a page and its figures.

Seconds per round of the engine ray against workers, beside the engine processes and Flower's simulation (in
an environment of its own), interleaved; what a task and a megabyte of model cost; the same rounds on clusters
of one to four nodes on this machine, beside what the estimate of docs/cluster.md says; and that estimate for
larger clusters.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

os.environ |= {  # before Ray is imported, which the measured clusters need
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or os.urandom(32).hex(),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
    "PYTHONWARNINGS": "ignore",
}

import torch
from benchlib.contender import Contender, Failed, ours, peer
from benchlib.environments import Unavailable, python_of
from benchlib.machine import describe, load
from benchlib.ours import session
from benchlib.race import interleave
from benchlib.workloads import WORKLOADS, Workload, make_data

from fedkeel.engines.ray.cluster import Cluster, Demand, connect

ROOT = Path(__file__).parents[1]
MEGABYTE = 2**20
SIZES = (1, 8, 44)  # MB
STORE = 400 * MEGABYTE
NETWORK = 1.25e9  # bytes per second of a link of 10 Gbit/s
CLUSTERS = (10, 100, 1000)  # nodes of the estimate, CORES each
CORES = 16


class Overheads(NamedTuple):
    """Seconds: of an empty task that is waited for, of one among many, and of a megabyte put and fetched."""

    latency: float
    task: float
    megabyte: float


class Setting(NamedTuple):
    """What the estimate is made of: clients per round, steps of each, seconds per step, MB of the model."""

    name: str
    cohort: int
    steps: int
    step: float
    megabytes: float


def workers_table(workload: Workload, repetitions: int, budget: float, flower: Path | None) -> dict[str, Any]:
    """Return the seconds per round of each contender, interleaved."""
    running: dict[str, Contender] = {}
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        data = str(Path(place) / "data.pt")
        torch.save(make_data(workload), data)
        makers = {
            "serial": lambda: ours(workload, data, "serial", engine="serial", threads=1),
            **{
                f"{engine}, {count} workers": (
                    lambda e=engine, c=count: ours(workload, data, f"{e} {c}", engine=e, workers=c)
                )
                for engine in ("processes", "ray")
                for count in (1, 2)
            },
        }
        if flower is not None:
            makers["Flower's simulation"] = lambda: peer("flwr", flower, workload, data, 1)
        try:
            for name, make in makers.items():
                made = make()
                try:
                    made.start()
                    running[name] = made
                except Failed as problem:
                    notes.append(f"{workload.name}: {name} does not run: {problem}")
            columns = interleave(
                running,
                repetitions,
                budget=budget,
                failed=lambda name, problem: notes.append(f"{workload.name}: {name}: {problem}"),
            )
        finally:
            for one in running.values():
                one.close()
    return {"workload": workload.to_json(), "seconds": columns, "notes": notes}


def overheads(cluster: Cluster) -> Overheads:
    """Measure what tasks and bytes cost."""
    demand = Demand()
    _get(cluster, [cluster.submit(nothing, demand=demand) for _ in range(8)])
    latency = _median(lambda: _get(cluster, [cluster.submit(nothing, demand=demand)]), 30)
    many = _median(lambda: _get(cluster, [cluster.submit(nothing, demand=demand) for _ in range(200)]), 5)
    times = [_median(lambda s=size: _travel(cluster, s), 5) for size in SIZES]
    slope = (times[-1] - times[0]) / (SIZES[-1] - SIZES[0])
    return Overheads(latency, many / 200, slope)


def nothing(*_: Any) -> None:
    """Do nothing."""


def give_back(content: bytes) -> bytes:
    """Return what is given, as an upload comes back."""
    return bytes(content)


def _travel(cluster: Cluster, size: int) -> None:
    """Put so many megabytes, have a node fetch them and send as many back."""
    cluster.get(cluster.submit(give_back, cluster.put(os.urandom(1024) * (1024 * size)), demand=Demand()))


def _get(cluster: Cluster, refs: list[Any]) -> None:
    for ref in refs:
        cluster.get(ref)


def _median(call: Any, times: int) -> float:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def on_nodes(workload: Workload, count: int, rounds: int, step: float) -> dict[str, Any]:
    """Return the seconds per round on a cluster of so many nodes here, beside the estimate."""
    from ray.cluster_utils import Cluster as LocalCluster  # noqa: PLC0415

    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    local = LocalCluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(count):
            local.add_node(num_cpus=1, object_store_memory=STORE)
        with closing(connect(local.address)) as cluster:
            found = overheads(cluster)
            made = session(workload, make_data(workload), engine="ray", address=local.address)
            with closing(made):
                played = made.rounds()
                for _ in range(2):
                    next(played)
                seconds = statistics.median(next(played)["seconds"] for _ in range(rounds))
                megabytes = made.context.oracle.point.numel() * 4 / MEGABYTE
    finally:
        local.shutdown()
    setting = Setting(workload.name, workload.cohort, workload.steps, step, megabytes)
    cores = min(count, os.cpu_count() or 1)
    expected = estimate(setting, found, slots=cores, nodes=1)["seconds"]
    return {"nodes": count, "seconds": seconds, "estimate": expected, "overheads": found._asdict()}


def estimate(setting: Setting, costs: Overheads, *, slots: int, nodes: int) -> dict[str, Any]:
    """Return the seconds of a round: the clients' steps, or what the driver or its link must do, if longer.

    The driver hands out a task per client, or per chunk of eight where there are more chunks than slots, and
    takes a sum per chunk. Its link carries the model to the first node (Ray's nodes pass it on, in about
    log2(nodes) steps) and the sums of the chunks back.
    """
    parts = math.ceil(setting.cohort / 8)
    tasks = setting.cohort if parts <= slots else parts + 8 * slots
    walking = math.ceil(setting.cohort / slots) * setting.steps * setting.step
    driver = tasks * costs.task + (1 + parts) * setting.megabytes * costs.megabyte / 2
    spread = 1 + math.log2(nodes) if nodes > 1 else 0.0
    network = (spread + (parts if nodes > 1 else 0)) * setting.megabytes * MEGABYTE / NETWORK
    sums = {"walking": walking, "driver": driver, "network": network}
    bound = max(sums, key=lambda name: sums[name])
    return {**sums, "seconds": max(walking, driver) + network, "bound": bound}


def page(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    machine = results["machine"]
    lines = [
        f"Measured {machine['date']} on {machine['cores']} cores ({machine['processor']}), load averages "
        f"before {machine['load']} and after {results['load_after']}: `{results['command']}`.",
        "",
        "| seconds per round | " + " | ".join(results["versus"]) + " |",
        "|---" * (1 + len(results["versus"])) + "|",
    ]
    names = list(dict.fromkeys(name for one in results["versus"].values() for name in one["seconds"]))
    for name in names:
        cells = []
        for one in results["versus"].values():
            column = [s for s in one["seconds"].get(name, []) if s is not None]
            cells.append(
                f"{statistics.median(column):.3f} ({min(column):.3f} to {max(column):.3f}, n={len(column)})"
                if column
                else "—"
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| nodes here | seconds per round | estimate | an empty task | one among many | a MB and back |",
        "|---|---|---|---|---|---|",
    ]
    for one in results["nodes"]:
        latency, task, megabyte = (1e3 * one["overheads"][name] for name in Overheads._fields)
        lines.append(
            f"| {one['nodes']} | {one['seconds']:.3f} | {one['estimate']:.3f} | {latency:.1f} ms | "
            f"{task:.2f} ms | {megabyte:.2f} ms |"
        )
    lines += [
        "",
        f"| extrapolated, {CORES} clients at once per node | "
        + " | ".join(f"{n} nodes" for n in CLUSTERS)
        + " |",
        "|---" * (1 + len(CLUSTERS)) + "|",
    ]
    for name, row in results["extrapolated"].items():
        cells = [f"{one['seconds']:.3g} s ({one['bound']})" for one in row]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    notes = [note for one in results["versus"].values() for note in one["notes"]] + results["notes"]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def extrapolated(costs: Overheads, steps: dict[str, float]) -> dict[str, list[dict[str, Any]]]:
    """Return the estimate for larger clusters: nobody has measured these."""
    settings = [
        Setting("logistic, 50 clients per round", 50, 40, steps["logistic50"], 0.03),
        Setting("logistic, 10,000 of 10⁶ clients per round", 10_000, 40, steps["logistic50"], 0.03),
        Setting("cnn, 100 clients per round", 100, 10, steps["cnn"], 8.3),
        Setting("cnn, 10,000 of 10⁶ clients per round", 10_000, 10, steps["cnn"], 8.3),
        Setting("44 MB model, 1,000 clients per round", 1_000, 50, 0.5, 44.0),
    ]
    return {
        one.name: [estimate(one, costs, slots=nodes * CORES, nodes=nodes) for nodes in CLUSTERS]
        for one in settings
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=["logistic50", "cnn"], choices=list(WORKLOADS))
    parser.add_argument("--nodes", nargs="*", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a workload's turns, about")
    parser.add_argument("--without-flower", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "ray_rounds.json")
    given = parser.parse_args()
    results: dict[str, Any] = {
        "machine": describe(),
        "command": "python benchmarks/ray_rounds.py",
        "notes": [],
    }
    flower = None
    if not given.without_flower:
        try:
            flower = python_of("flwr", install=True, report=print)
        except Unavailable as problem:
            results["notes"].append(f"Flower is left out: {problem}")
    results |= {"versus": {}, "nodes": [], "extrapolated": {}}
    steps: dict[str, float] = {}
    for name in given.workloads:
        found = workers_table(_smaller(WORKLOADS[name]), given.repetitions, given.budget, flower)
        results["versus"][name] = found
        serial = statistics.median(found["seconds"]["serial"])
        steps[name] = serial / found["workload"]["cohort"] / WORKLOADS[name].steps
        _write(results, given.out)
    first = given.workloads[0]
    for count in given.nodes:
        results["nodes"].append(on_nodes(WORKLOADS[first], count, 15, steps[first]))
        if {"logistic50", "cnn"} <= steps.keys():
            results["extrapolated"] = extrapolated(Overheads(**results["nodes"][-1]["overheads"]), steps)
        _write(results, given.out)
    print(page(results))


def _write(results: dict[str, Any], out: Path) -> None:
    """Keep what is measured so far."""
    results["load_after"] = load()
    out.write_text(json.dumps(results, indent=1) + "\n")


def _smaller(workload: Workload) -> Workload:
    """Return a workload whose rounds are short enough for many turns."""
    return replace(workload, cohort=min(workload.cohort, 4)) if workload.name == "cnn" else workload


if __name__ == "__main__":
    main()
