"""Measures fedkeel against a bare PyTorch loop and its peers, interleaved: `make bench`.

Writes a page (Markdown) and beside it all turns (JSON). See docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from benchlib.environments import REQUIREMENTS, Unavailable, python_of
from benchlib.machine import describe, load
from benchlib.plan import FULL, QUICK, Log, Plan
from benchlib.report import markdown
from benchlib.workloads import QUICK as QUICK_WORKLOADS
from benchlib.workloads import WORKLOADS

ROOT = Path(__file__).parents[1]
PARTS = ("versus", "methods", "sweeps", "choices")


def main() -> None:
    """Measure and write."""
    options = _options()
    plan, log = _plan(options), Log()
    results = _before(options) if options.keep else {"runs": [], "versus": {}, "notes": []}
    results["runs"].append({"command": _command(options), "machine": describe()})
    log.notes = results["notes"]
    try:
        _measure(results, options, plan, log)
    except KeyboardInterrupt:
        log.note("stopped before the end")
    _write(results, options.out, log)
    print(markdown(results))


def _before(options: argparse.Namespace) -> dict[str, Any]:
    """Return what is measured already, without what is to be measured anew."""
    path = options.out.with_suffix(".json")
    results: dict[str, Any] = json.loads(path.read_text())
    again = options.workloads if "versus" in options.parts else []
    results["versus"] = {name: one for name, one in results["versus"].items() if name not in again}
    results["notes"] = [note for note in results["notes"] if note.partition(":")[0] not in again]
    return results


def _measure(results: dict[str, Any], options: argparse.Namespace, plan: Plan, log: Log) -> None:
    if "versus" in options.parts:
        from benchlib.versus import Versus  # noqa: PLC0415  imports torch

        pythons = _pythons(options.peers, plan, log)
        known = {**WORKLOADS, **QUICK_WORKLOADS} if plan.quick else WORKLOADS
        for name in options.workloads:
            found = Versus(known[name], plan, log, pythons).measure()
            everything = {**results["versus"], name: found}
            results["versus"] = {key: everything[key] for key in known if key in everything}
            _write(results, options.out, log)
    if {"methods", "sweeps"} & set(options.parts):
        from benchlib import inside  # noqa: PLC0415  imports fedkeel

        if "methods" in options.parts:
            results["methods"] = inside.methods(plan, log, _best_threads(results))
        if "sweeps" in options.parts:
            results["sweeps"] = inside.sweeps(plan, log)
    if "choices" in options.parts:
        from benchlib import choices  # noqa: PLC0415  imports torch

        effort = choices.Effort()
        results["choices"] = [choices.measure(one, effort, log) for one in choices.WORKLOADS.values()]


def _best_threads(results: dict[str, Any]) -> int | None:
    """Return the bare loop's best number of threads on the CNN today, where it is known."""
    facts = results["versus"].get("cnn", {}).get("facts", {})
    found: int | None = facts.get("bare loop", {}).get("threads")
    return found


def _pythons(peers: list[str], plan: Plan, log: Log) -> dict[str, Path]:
    found = {}
    for peer in peers:
        try:
            found[peer] = python_of(peer, install=not plan.quick, report=log.say)
        except Unavailable as problem:
            log.note(f"{peer} is left out: {problem}")
    return found


def _write(results: dict[str, Any], out: Path, log: Log) -> None:
    results["runs"][-1] |= {"minutes": log.minutes, "load_after": load()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(markdown(results))
    out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")


def _plan(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else FULL
    if options.repetitions is None:
        return plan
    return Plan(**{**plan.__dict__, "repetitions": options.repetitions})


def _command(options: argparse.Namespace) -> str:
    usual = _usual(options.quick)
    chosen = [f"--workloads {' '.join(options.workloads)}"] if options.workloads != usual else []
    chosen += [f"--parts {' '.join(options.parts)}"] if options.parts != _parts(options.quick) else []
    chosen += [f"--peers {' '.join(options.peers)}"] if options.peers != list(REQUIREMENTS) else []
    chosen += ["--quick"] if options.quick else []
    chosen += [f"--repetitions {options.repetitions}"] if options.repetitions else []
    chosen += ["--keep"] if options.keep else []
    return " ".join(["python benchmarks/run.py", *chosen])


def _usual(quick: bool) -> list[str]:
    return list(QUICK_WORKLOADS if quick else WORKLOADS)


def _parts(quick: bool) -> list[str]:
    return ["versus", "methods"] if quick else list(PARTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workloads", nargs="+", choices=list(WORKLOADS), help="default: all; logistic, cnn where --quick")
    add("--peers", nargs="*", choices=list(REQUIREMENTS), default=list(REQUIREMENTS))
    add("--parts", nargs="+", choices=PARTS, help="default: all; versus, methods where --quick")
    add("--repetitions", type=int, help="interleaved pairs of each workload, at most")
    add("--quick", action="store_true", help="about four minutes, wide intervals; installs nothing")
    add("--keep", action="store_true", help="measure again what is named; the rest of the page stays")
    add("--out", type=Path, default=ROOT / "docs" / "benchmark.md", help="the page; the turns go beside it")
    options = parser.parse_args()
    options.parts = options.parts or _parts(options.quick)
    options.workloads = options.workloads or _usual(options.quick)
    return options


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
