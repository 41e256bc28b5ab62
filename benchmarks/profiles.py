"""Says where the time of a round goes: `python benchmarks/profiles.py cnn serial`.

Operators by torch's profiler (their own time, all threads counted at the caller), then Python functions by
cProfile, in a run of their own: each disturbs the other.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from collections import Counter
from contextlib import closing

from benchlib.ours import session
from benchlib.workloads import WORKLOADS, make_data
from torch.profiler import ProfilerActivity, profile

from fedkeel.running.session import Session


def main() -> None:
    """Profile a workload with an engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=list(WORKLOADS))
    parser.add_argument("engine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--top", type=int, default=14)
    options = parser.parse_args()
    workload = WORKLOADS[options.workload]
    opened = session(workload, make_data(workload), engine=options.engine, threads=options.threads)
    with closing(opened):
        rows = opened.rounds()
        next(rows)
        next(rows)
        operators(opened, options.rounds, options.top)
        functions(opened, options.rounds, options.top)


def operators(opened: Session, rounds: int, top: int) -> None:
    """Print the operators that take most of the time."""
    rows = opened.rounds()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        seconds = sum(next(rows)["seconds"] for _ in range(rounds))
    own: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in recorded.key_averages():
        own[event.key] += event.self_cpu_time_total / 1e6
        calls[event.key] += event.count
    print(f"{seconds / rounds * 1000:.1f} ms per round on {opened.context.engine.threads} threads, profiled")
    for name, spent in own.most_common(top):
        each = f"{spent / rounds * 1000:9.2f} ms {calls[name] / rounds:8.0f} calls"
        print(f"{spent / seconds:6.1%} {each}  {name}")
    print(f"{1 - sum(own.values()) / seconds:6.1%} outside operators (Python)\n")


def functions(opened: Session, rounds: int, top: int) -> None:
    """Print the Python functions that take most of the time themselves."""
    rows = opened.rounds()
    watch = cProfile.Profile()
    watch.enable()
    for _ in range(rounds):
        next(rows)
    watch.disable()
    pstats.Stats(watch).sort_stats("tottime").print_stats(top)


if __name__ == "__main__":
    main()
