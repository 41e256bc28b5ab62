"""The figures of Ray as a page."""

from __future__ import annotations

import statistics
from typing import Any

from benchlib.ray_estimate import CLUSTERS, CORES, Overheads

BUSY = 0.4  # load average per core, before a run, from which figures mean little
_HEAD = """# Figures of the engine ray

Written by `python benchmarks/ray_rounds.py`; do not edit. What it means: [cluster.md](cluster.md).
"""


def page(results: dict[str, Any]) -> str:
    """Return all that is measured as Markdown."""
    versus, nodes = results["parts"].get("versus", {}), results["parts"].get("nodes", {})
    lines = [_HEAD, *_runs(results)]
    if versus:
        lines += ["", "## Rounds per second against workers", "", *_versus(versus)]
    if nodes:
        lines += ["", "## Overheads, and nodes on this machine", "", *_nodes(nodes)]
    if memories := results["parts"].get("memories"):
        lines += ["", "## Clients' memories at the driver", "", *_memories(memories)]
    if results.get("extrapolated"):
        lines += ["", "## Larger clusters: extrapolated, not measured", "", *_larger(results)]
    notes = [f"- {name}: {who}: {why}" for name, one in versus.items() for who, why in one["notes"].items()]
    notes += [f"- {note}" for note in results["notes"]]
    if notes:
        lines += ["", "## What is missing", "", *notes]
    return "\n".join(lines) + "\n"


def _runs(results: dict[str, Any]) -> list[str]:
    if not results["runs"]:
        return ["Nothing is measured yet."]
    lines = []
    for run in results["runs"]:
        machine = run["machine"]
        busy = machine["load"][0] > BUSY * machine["cores"]
        lines.append(
            f"- `{run['command']}`: {machine['date']}, {run['minutes']:.0f} minutes, {machine['cores']} "
            f"cores ({machine['processor']}, {machine['system']}), Python {machine['python']}, load averages "
            f"before {_listed(machine['load'])}, after {_listed(run['load_after'])}."
            + (" **The machine was busy with other work: these figures mean little.**" if busy else "")
        )
    found = [facts for one in results["parts"].get("versus", {}).values() for facts in one["facts"].values()]
    versions = {f"{name} {version}" for facts in found for name, version in facts.items() if name != "chose"}
    return [*lines, *([f"- {', '.join(sorted(versions))}."] if versions else [])]


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _versus(versus: dict[str, Any]) -> list[str]:
    names = list(dict.fromkeys(name for one in versus.values() for name in one["seconds"]))
    heads = [_shape(one["workload"]) for one in versus.values()]
    lines = [
        "Medians of interleaved turns, in brackets the slowest and the fastest of n. One thread per worker; "
        "the method is FedAvg, no round is evaluated.",
        "",
        *_header(["rounds per second", *heads]),
    ]
    for name in names:
        cells = [_rates(one["seconds"].get(name, [])) for one in versus.values()]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return lines


def _shape(workload: dict[str, Any]) -> str:
    return (
        f"{workload['name']} ({workload['cohort']} of {workload['clients']} × {workload['samples']}, batch "
        f"{workload['batch']}, {workload['epochs']} epochs)"
    )


def _rates(column: list[float | None]) -> str:
    rates = [1 / seconds for seconds in column if seconds is not None]
    if not rates:
        return "—"
    return f"{statistics.median(rates):.3g} ({min(rates):.3g}–{max(rates):.3g}; n={len(rates)})"


def _nodes(nodes: dict[str, Any]) -> list[str]:
    lines = [
        "Clusters of `ray.cluster_utils`: a head, and nodes that run one client at a time, all on this "
        "machine and its cores.",
        "",
        *_header(["nodes", "an empty task", "one among 200", "a MB there and back"]),
    ]
    for one in nodes.values():
        costs = [f"{1e3 * one['overheads'][name]:.2f} ms" for name in Overheads._fields]
        lines.append(f"| {' | '.join([str(one['nodes']), *costs])} |")
    lines += [
        "",
        "Seconds per round (medians): in serial, on the cluster, and by the estimate from that cluster's own "
        "overheads (in brackets what bounds it). More nodes than cores cannot be faster.",
        "",
        *_header(["workload", "nodes", "serial", "ray", "estimate", "ray ÷ estimate"]),
    ]
    for name in next(iter(nodes.values()))["workloads"]:
        for one in nodes.values():
            cells = [name, str(one["nodes"]), *_beside(one["workloads"][name])]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _beside(found: dict[str, Any]) -> list[str]:
    expected = found["estimate"]["seconds"]
    told = f"{_short(expected)} ({found['estimate']['bound']})"
    return [_short(found["serial"]), _short(found["ray"]), told, f"{found['ray'] / expected:.2f}"]


def _short(value: float) -> str:
    """Return a number with three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _memories(memories: dict[str, Any]) -> list[str]:
    lines = [
        "A logistic model, clients loaded when they are needed, a single step each; two methods: FedAvg's "
        "clients keep nothing, SCAFFOLD's a vector. What the driver's own memory grew by in a round (its "
        "mapped file of memories not counted), and by how much more per byte of a round's memories.",
        "",
        *_header(["clients per round", "FedAvg", "SCAFFOLD", "bytes per byte"]),
    ]
    for one in memories.values():
        round_bytes = one["cohort"] * one["memory"]
        more = one["scaffold"]["bytes"] - one["fedavg"]["bytes"]
        cells = [
            f"{one['cohort']:,} of {one['clients']:,}",
            *(
                f"{_short(one[name]['seconds'])} s, {one[name]['bytes'] / 1e6:.0f} MB"
                for name in ("fedavg", "scaffold")
            ),
            f"{more / round_bytes:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _larger(results: dict[str, Any]) -> list[str]:
    costs = results["overheads"]
    lines = [
        "**Nobody has measured these.** The estimate with the median overheads above ("
        f"{1e3 * costs['task']:.2f} ms per task, {1e3 * costs['megabyte']:.2f} ms per MB there and back), "
        f"{CORES} clients at once per node and a link of 10 Gbit/s at the driver. In brackets what bounds "
        "the round: the clients' steps, the driver's work, or its link. The last column is what the driver "
        "holds of clients' memories in a round.",
        "",
        *_header(["seconds per round", *(f"{count:,} nodes" for count in CLUSTERS), "driver's memory"]),
    ]
    for row in results["extrapolated"]:
        cells = [f"{_short(one['seconds'])} ({one['bound']})" for one in row["clusters"]]
        held = row["clusters"][0]["driver_bytes"]
        lines.append(f"| {' | '.join([row['name'], *cells, f'{_short(held / 1e9)} GB' if held else '—'])} |")
    return lines


def _header(cells: list[str]) -> list[str]:
    return [f"| {' | '.join(cells)} |", "|---" * len(cells) + "|"]
