"""Seconds of every engine and of `auto` for runs of several lengths: `python benchmarks/choices.py`.

Choosing and compiling are included, with an empty cache for every run. `≈` marks what is extrapolated from
the start and some seconds of rounds. Part of `make bench`; see docs/performance.md.
"""

from __future__ import annotations

import argparse

from benchlib.choices import ROWS, WORKLOADS, Effort, measure, table
from benchlib.machine import describe, load
from benchlib.plan import Log


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    add("--rows", nargs="+", type=int, default=list(ROWS), help="lengths of runs: serial's seconds")
    add("--repetitions", type=int, default=1)
    add("--whole", type=float, default=10.0, help="rows up to so many seconds are played to their end")
    add("--steady", type=float, default=5.0, help="seconds of rounds that are measured of longer runs")
    given = parser.parse_args()
    log, machine = Log(), describe()
    effort = Effort(sorted(given.rows), given.repetitions, given.whole, given.steady)
    results = [measure(WORKLOADS[name], effort, log) for name in given.workloads]
    print(f"{machine['processor']}, {machine['cores']} cores, {machine['date']}, {log.minutes:.0f} minutes")
    print(f"load average before {machine['load']}, after {load()}\n")
    print(table(results))


if __name__ == "__main__":
    main()
