"""Seconds per round of two versions of fedkeel, interleaved: `python benchmarks/versions.py OLD/src NEW/src`.

Each version runs in processes of its own, in turn, on the public interface alone; the figure is the ratio of
the medians, new over old, with the quartiles of the pairs. Below 1 the new version is faster. Two workloads
are about worker processes: "start" is a whole run of one round, the import of fedkeel left out, and
"recovery" a round before which a worker was killed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WORKLOADS = {
    "logistic": {"model": "logistic", "shape": (784,), "clients": 100, "samples": 96, "cohort": 50},
    "mlp": {"model": "mlp", "shape": (64,), "clients": 50, "samples": 36, "cohort": 10},
    "cnn": {"model": "cnn", "shape": (3, 32, 32), "clients": 20, "samples": 50, "cohort": 4},
    "lstm": {"model": "char_lstm", "shape": (80,), "clients": 20, "samples": 24, "cohort": 4},
}
OF_WORKERS = ("start", "recovery")
ENGINES = ("serial", "stacked", "processes")


def measure(workload: str, engine: str, rounds: int) -> list[float]:
    """Return the seconds of each round after the first two, in this process."""
    from fedkeel import SCAFFOLD, Federation, Task, Work, models, train  # noqa: PLC0415, F401  may be lazy

    if workload == "start":
        started = time.perf_counter()
        _train("mlp", engine, 1)
        return [time.perf_counter() - started]
    if workload == "recovery":
        return _train("mlp", engine, rounds, killing=True)[3:-1:2]
    return _train(workload, engine, rounds)[2:-1]


def _train(workload: str, engine: str, rounds: int, killing: bool = False) -> list[float]:
    import torch  # noqa: PLC0415

    import fedkeel as fk  # noqa: PLC0415

    spec = WORKLOADS[workload]
    generator = torch.Generator().manual_seed(0)
    clients = [_samples(spec, generator) for _ in range(spec["clients"])]
    outputs = 80 if spec["model"] == "char_lstm" else 10
    model = fk.models.build(spec["model"], shape=spec["shape"], classes=outputs, seed=0)
    seconds: list[float] = []

    def see(row: Any) -> None:
        seconds.append(row["seconds"])
        if killing and len(seconds) > 1 and len(seconds) % 2:
            os.kill(max(_leaves(os.getpid()), key=_resident), signal.SIGKILL)  # a worker, not its forerunners

    threads = None if engine == "processes" else 1
    given: dict[str, Any] = {"engine": engine, "threads": threads, "eval_every": rounds + 2, "callback": see}
    if hasattr(fk, "Execution"):  # since version 0.2
        execution, evaluation = fk.Execution(engine, threads=threads), fk.Evaluation(rounds + 2)
        given = {"execution": execution, "evaluation": evaluation, "callbacks": see}
    fk.train(
        fk.Task(model),
        fk.Federation.from_arrays(clients, clients[0]),
        fk.SCAFFOLD(),
        rounds=rounds + 2,
        cohort=spec["cohort"],
        work=fk.Work(epochs=1, batch_size=12, lr=0.01),
        **given,
    )
    return seconds


def _samples(spec: dict[str, Any], generator: Any) -> tuple[Any, Any]:
    import torch  # noqa: PLC0415

    count = spec["samples"]
    if spec["model"] == "char_lstm":
        text = torch.randint(80, (count, *spec["shape"]), generator=generator)
        return text, text[:, -1]
    return torch.randn(count, *spec["shape"], generator=generator), torch.arange(count) % 10


def _leaves(pid: int) -> list[int]:
    """Return the processes below one that have no children."""
    children = [int(c) for f in Path(f"/proc/{pid}/task").glob("*/children") for c in f.read_text().split()]
    return [leaf for child in children for leaf in _leaves(child) or [child]]


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def timed(source: str, workload: str, engine: str, rounds: int) -> float:
    """Measure a version in a process of its own; return its median seconds per round."""
    code = f"import versions, json; print(json.dumps(versions.measure({workload!r}, {engine!r}, {rounds})))"
    paths = os.pathsep.join([source, os.path.dirname(os.path.abspath(__file__))])
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return statistics.median(json.loads(found.stdout.splitlines()[-1]))


def main() -> None:
    """Measure the pairs in turn and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workloads", nargs="*", default=[*WORKLOADS, *OF_WORKERS])
    parser.add_argument("--engines", nargs="*", default=list(ENGINES))
    given = parser.parse_args()
    for workload in given.workloads:
        for engine in ["processes"] if workload in OF_WORKERS else given.engines:
            pairs = [
                [timed(source, workload, engine, given.rounds) for source in (given.old, given.new)]
                for _ in range(given.pairs)
            ]
            old, new = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratios = sorted(b / a for a, b in pairs)
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            print(
                f"{workload:9} {engine:10} old {old * 1000:8.2f} ms  new {new * 1000:8.2f} ms per round  "
                f"ratio {new / old:.3f} ({low:.3f} to {high:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
