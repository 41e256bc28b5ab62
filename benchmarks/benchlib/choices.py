"""What `auto` takes beside the best engine, for runs of several lengths: choosing and compiling included.

Every run is a process of its own with an empty cache, so nothing is compiled or chosen before. The length of
a row is what serial takes for it. Runs up to `Effort.whole` seconds are played to their end; of longer ones
the start and some seconds of rounds are measured, and the rest is extrapolated.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchlib.plan import Log
from benchlib.workloads import WORKLOADS as VERSUS_WORKLOADS
from benchlib.workloads import Workload

HERE = Path(__file__).parents[1]
ENGINES = ("serial", "stacked-uncompiled", "stacked", "processes")
ROWS = (10, 30, 100, 1000)
MOST_RATIO, MOST_SECONDS = 1.2, 3.0  # that auto may take more than the best engine: whichever is more
_ENDLESS, _FIRST_ROUNDS = 10**6, 2
WORKLOADS = {
    workload.name: workload
    for workload in (
        VERSUS_WORKLOADS["logistic"],
        Workload("mlp", "mlp", (64,), 10, 100, 36, 10, 12, epochs=5),
        VERSUS_WORKLOADS["cnn"].with_(clients=20, samples=100, cohort=4),
        VERSUS_WORKLOADS["lstm"].with_(clients=20),
    )
}


@dataclass(frozen=True)
class Effort:
    """Rows and repetitions, which rows are played to the end, and the seconds of rounds of the others."""

    rows: Sequence[int] = ROWS
    repetitions: int = 1
    whole: float = 10.0
    steady: float = 5.0


@dataclass(frozen=True)
class WholeRun:
    """A run that was measured: the seconds to the end of each round, and to the end of the run."""

    rounds: int
    ends: Sequence[float]
    total: float
    chose: str

    @property
    def round_seconds(self) -> float:
        """Return the seconds of a round after the first ones."""
        rest = self.ends[_FIRST_ROUNDS - 1 :]
        return median(after - before for before, after in pairwise(rest))

    def seconds(self, rounds: int) -> float:
        """Return what so many rounds take: as measured, or extrapolated."""
        if rounds == self.rounds == len(self.ends):
            return self.total
        return self.ends[_FIRST_ROUNDS - 1] + (rounds - _FIRST_ROUNDS) * self.round_seconds


def measure(workload: Workload, effort: Effort, log: Log) -> dict[str, Any]:
    """Return the seconds of every engine and of auto, for every row."""
    pilot = play(workload, "serial", _ENDLESS, effort.whole)
    rounds = {row: max(3, round(row / pilot.round_seconds)) for row in effort.rows}
    found: dict[tuple[str, int], list[WholeRun]] = {}
    failures: dict[str, str] = {}
    turns = [(engine, row) for row in effort.rows for engine in _engines_of(row, effort)]
    for repetition in range(effort.repetitions):
        random.Random(repetition).shuffle(turns)
        for engine, row in turns:
            if engine in failures:
                continue
            log.say(f"{workload.name}: {engine}, {row} s, repetition {repetition + 1}")
            enough = float(_ENDLESS) if row <= effort.whole else effort.steady
            try:
                run = play(workload, engine, rounds[row], enough)
            except subprocess.CalledProcessError as problem:
                if engine in ("serial", "auto"):  # they run every task
                    raise RuntimeError(f"{workload.name}, {engine}: {problem.stderr}") from None
                failures[engine] = problem.stderr.strip().splitlines()[-1][:300]
                log.note(f"{workload.name}: {engine} does not run: {failures[engine]}")
                continue
            found.setdefault((engine, row), []).append(run)
    return {"workload": workload.to_json(), "rows": [_row(row, rounds[row], found) for row in effort.rows]}


def play(workload: Workload, engine: str, rounds: int, enough: float) -> WholeRun:
    """Run in a process of its own with an empty cache."""
    job = {"workload": workload.to_json(), "engine": engine, "rounds": rounds, "enough": enough}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONWARNINGS": "ignore"}
        environment.pop("TORCHINDUCTOR_CACHE_DIR", None)
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), str(HERE)])
        told = subprocess.run(
            [sys.executable, "-m", "benchlib.whole_run", json.dumps(job)],
            env=environment,
            cwd=HERE,
            capture_output=True,
            text=True,
            check=True,
        )
    answer = json.loads(told.stdout.splitlines()[-1])
    return WholeRun(rounds, answer["ends"], answer["total"], answer["chose"])


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return the measurements as Markdown."""
    head = [
        "workload",
        "serial's seconds",
        "rounds",
        *ENGINES,
        "auto",
        "auto chose",
        "auto − best",
        "auto / best",
    ]
    lines = [head, ["---"] * len(head), *(_cells(one, row) for one in results for row in one["rows"])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def within(row: dict[str, Any]) -> bool:
    """Tell whether auto takes little longer than the best engine."""
    best, auto = min(row["seconds"].values()), row["auto"]
    return bool(auto <= max(MOST_RATIO * best, best + MOST_SECONDS))


def _engines_of(row: int, effort: Effort) -> tuple[str, ...]:
    """Return who runs for a row: auto always; an engine's longer runs follow from its shortest."""
    return ("auto", *ENGINES) if row == min(effort.rows) or row <= effort.whole else ("auto",)


def _row(row: int, rounds: int, found: dict[tuple[str, int], list[WholeRun]]) -> dict[str, Any]:
    seconds = {}
    for engine in ENGINES:
        runs = found.get((engine, row)) or [
            run for (name, _), own in found.items() if name == engine for run in own
        ]
        if runs:
            seconds[engine] = median(run.seconds(rounds) for run in runs)
    auto = found["auto", row]
    return {
        "row": row,
        "rounds": rounds,
        "seconds": seconds,
        "auto": median(run.seconds(rounds) for run in auto),
        "chose": auto[0].chose,
        "whole": all(len(run.ends) == rounds for run in auto),
    }


def _cells(result: dict[str, Any], row: dict[str, Any]) -> list[str]:
    best, auto = min(row["seconds"].values()), row["auto"]
    mark = "" if row["whole"] else "≈ "
    engines = [f"{mark}{row['seconds'][name]:.1f}" if name in row["seconds"] else "—" for name in ENGINES]
    verdict = f"{auto / best:.2f}{'' if within(row) else ' **(too long)**'}"
    name, threads = row["chose"].split()
    how = f"{name}, {threads} thread{'s' * (threads != '1')}"
    return [
        result["workload"]["name"],
        str(row["row"]),
        str(row["rounds"]),
        *engines,
        f"{mark}{auto:.1f}",
        how,
        f"{auto - best:+.1f} s",
        verdict,
    ]
