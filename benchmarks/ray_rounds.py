"""What Ray costs: `python benchmarks/ray_rounds.py` (needs fedkeel[ray]); about twelve minutes on two cores.

Rounds per second of the engine ray against workers, beside the engine processes and Flower's simulation (in
an environment of its own, made once); what a task and a megabyte of model cost; the same rounds on clusters
of one to four nodes on this machine, beside the estimate; what clients' memories cost the driver; and the
estimate for larger clusters.

Writes a page and beside it the figures (JSON), after every part. A run that was stopped goes on where it was
when the same command is given again; `--again` measures everything anew.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchlib.environments import Unavailable, cache_directory, python_of
from benchlib.machine import describe, load
from benchlib.plan import Log
from benchlib.ray_estimate import Overheads, extrapolated
from benchlib.ray_page import page
from benchlib.workloads import SOURCE, WORKLOADS, Workload

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
_PART_SECONDS = 240.0  # a process that takes longer is given up

# The CNN with fewer clients per round, so that there are several turns; and its data on five nodes at once.
_VERSUS = {**WORKLOADS, "cnn": WORKLOADS["cnn"].with_(cohort=4, clients=20)}
_NODES = {"logistic50": WORKLOADS["logistic50"].with_(clients=60), "cnn": _VERSUS["cnn"].with_(clients=8)}
_ORDER = ("logistic50", "cnn", "logistic", "lstm", "resnet")


class Effort:
    """How much is measured."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.repetitions, self.budget = (1, 5.0) if quick else (7, 60.0)
        self.node_repetitions, self.node_rounds = (1, 2) if quick else (5, 7)
        self.cohorts, self.memory_rounds = ((200,), 1) if quick else ((1000, 4000), 2)

    def smaller(self, workload: Workload) -> Workload:
        """Return a workload as it is measured."""
        return workload.with_(cohort=min(2, workload.cohort), clients=8, warm=1) if self.quick else workload


def main() -> None:
    """Measure and write."""
    options = _options()
    effort, log = Effort(quick=options.quick), Log()
    results = _before(options)
    todo = [("nodes", str(count)) for count in options.nodes]
    todo += [("memories", str(cohort)) for cohort in effort.cohorts]
    todo += [("versus", name) for name in options.workloads]
    todo = [(kind, name) for kind, name in todo if name not in results["parts"].get(kind, {})]
    if not todo:
        log.say(f"all of it is measured in {options.out}: --again measures anew")
    else:
        results["runs"].append({"command": _command(options), "machine": describe()})
        try:
            _measure(todo, results, options, effort, log)
        except KeyboardInterrupt:
            log.say("stopped: the same command goes on from here")
    _write(results, options, log, measured=bool(todo))
    print(page(results))


def _measure(
    todo: list[tuple[str, str]],
    results: dict[str, Any],
    options: argparse.Namespace,
    effort: Effort,
    log: Log,
) -> None:
    """Measure part after part, as long as there is time for one."""
    results["notes"] = []
    flower = _flower(results, options, log)
    for kind, name in todo:
        if log.minutes > options.minutes:
            log.say(f"no time left for {kind} {name}: the same command goes on from here")
            results["notes"].append(f"{kind} {name}: there was no time left")
            continue
        log.say(f"{kind} {name}")
        try:
            found = _part(kind, name, effort, flower, log)
        except RuntimeError as problem:
            results["notes"].append(f"{kind} {name}: {problem}")
            log.say(results["notes"][-1])
            continue
        results["parts"].setdefault(kind, {})[name] = found
        _write(results, options, log)


def _part(kind: str, name: str, effort: Effort, flower: Path | None, log: Log) -> dict[str, Any]:
    if kind == "nodes":
        workloads = [effort.smaller(one).to_json() for one in _NODES.values()]
        measured = {"repetitions": effort.node_repetitions, "rounds": effort.node_rounds}
        return _apart("ray_nodes", nodes=int(name), workloads=workloads, **measured)
    if kind == "memories":
        return _apart("ray_memories", clients=10**6, cohort=int(name), rounds=effort.memory_rounds)
    return _versus(effort.smaller(_VERSUS[name]), effort, flower, log)


def _versus(workload: Workload, effort: Effort, flower: Path | None, log: Log) -> dict[str, Any]:
    from benchlib import ray_versus  # noqa: PLC0415  imports torch

    limits = {"repetitions": effort.repetitions, "budget": effort.budget}
    return ray_versus.measure(workload, **limits, flower=flower, log=log)


def _apart(module: str, **job: Any) -> dict[str, Any]:
    """Let a process of its own measure something."""
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{SOURCE}", "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchlib.{module}", json.dumps(job)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=HERE,
        start_new_session=True,
    )
    try:
        told, errors = process.communicate(timeout=_PART_SECONDS)
    except BaseException as problem:  # an interrupt too: Ray's processes end with the one that started them
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(problem, subprocess.TimeoutExpired):
            raise RuntimeError(f"no answer in {_PART_SECONDS:g} s") from None
        raise
    if process.returncode:
        raise RuntimeError((errors.strip().splitlines() or [f"code {process.returncode}"])[-1][:300])
    found: dict[str, Any] = json.loads(told)
    return found


def _flower(results: dict[str, Any], options: argparse.Namespace, log: Log) -> Path | None:
    if options.without_flower:
        return None
    try:
        return python_of("flwr", install=True, report=log.say)
    except Unavailable as problem:
        results["notes"].append(f"Flower is left out: {problem}")
        return None


def _before(options: argparse.Namespace) -> dict[str, Any]:
    """Return what is measured already."""
    path = options.out.with_suffix(".json")
    if options.again or not path.exists():
        return {"runs": [], "parts": {}, "notes": []}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _write(results: dict[str, Any], options: argparse.Namespace, log: Log, *, measured: bool = True) -> None:
    """Keep what is measured so far, in the order of the tables."""
    if measured:
        results["runs"][-1] |= {"minutes": log.minutes, "load_after": load()}
    found = {kind: results["parts"].get(kind, {}) for kind in ("versus", "nodes", "memories")}
    results["parts"] = {
        kind: {
            name: parts[name]
            for name in (_ORDER if kind == "versus" else sorted(parts, key=int))
            if name in parts
        }
        for kind, parts in found.items()
    }
    nodes = found["nodes"]
    if nodes:
        costs = {
            name: statistics.median(one["overheads"][name] for one in nodes.values())
            for name in Overheads._fields
        }
        steps = {
            name: statistics.median(one["workloads"][name]["step"] for one in nodes.values())
            for name in _NODES
        }
        results |= {"overheads": costs, "extrapolated": extrapolated(Overheads(**costs), steps)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page(results))
    options.out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")


def _command(options: argparse.Namespace) -> str:
    chosen = [f"--workloads {' '.join(options.workloads)}"] if options.workloads != list(_ORDER) else []
    chosen += [f"--nodes {' '.join(map(str, options.nodes))}"] if options.nodes != [1, 2, 3, 4] else []
    chosen += ["--quick"] if options.quick else []
    chosen += ["--without-flower"] if options.without_flower else []
    return " ".join(["python benchmarks/ray_rounds.py", *chosen])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workloads", nargs="*", choices=_ORDER, default=list(_ORDER))
    add(
        "--nodes", nargs="*", type=int, default=[1, 2, 3, 4], help="clusters of so many nodes on this machine"
    )
    add("--minutes", type=float, default=12.5, help="no part is begun after so long")
    add("--quick", action="store_true", help="a trial of every part: its figures mean nothing")
    add("--again", action="store_true", help="measure anew what is there already")
    add("--without-flower", action="store_true")
    add("--out", type=Path, help="the page, beside it the figures; where --quick not in docs/")
    options = parser.parse_args()
    usual = cache_directory() / "ray_quick.md" if options.quick else ROOT / "docs" / "cluster_figures.md"
    options.out = options.out or usual
    return options


if __name__ == "__main__":
    main()
