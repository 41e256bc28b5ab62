"""Kills runs with SIGKILL at many instants, resumes them, and tells how they ended. Run by test_kill.py.

A child is forked for every attempt from this process, which has imported everything and computed nothing: it
has one thread, and an attempt costs milliseconds. A random instant is a random one of the run's calls of
functions, so every failure can be repeated. Nothing is really synced: that matters when the power fails.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fedkeel as fk
from fedkeel.running.checkpoints import Checkpoints

RUNS = {  # the method, and whether a finished run keeps the clients' memories
    "SCAFFOLD": (fk.SCAFFOLD(), True),
    "without memories": (fk.SCAFFOLD(), False),
    "stages": (fk.stages((fk.FedDyn(), 3), fk.FedAvg()), True),
    "relaxed": (fk.relaxed(fk.SCAFFOLD(), beta=0.1), True),
}
EVERY_POINT = ("SCAFFOLD", "without memories")  # are killed before every change of the disk
POINTS = ("fsync", "replace", "mkdir", "unlink", "rmdir")  # what changes the disk, one by one
LIVES, KILLS = 3, 4  # runs that are killed at random, and how often each


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_event(number: int) -> Callable[..., None]:
    """Return a profiler that ends the process at the n-th call of a Python function."""
    left = number

    def profiler(_frame: object, event: str, _argument: object) -> None:
        nonlocal left
        if event in {"call", "c_call"}:
            left -= 1
            if left == 0:
                die()

    return profiler


def watch_points(number: int) -> list[int]:
    """End the process just before the n-th change of the disk; return the running count."""
    count = [0]

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] == number:
                die()
            return function(*args, **kwargs)

        return call

    os.fsync = lambda _: None
    for name in POINTS:
        setattr(os, name, watched(getattr(os, name)))
    return count


def train(name: str, path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    clients = [(torch.randn(6, 3, generator=generator), torch.arange(6) % 2) for _ in range(8)]
    torch.manual_seed(0)
    algorithm, keep_client_states = RUNS[name]
    fk.train(
        fk.Task(nn.Linear(3, 2)),
        fk.Federation.from_arrays(clients),
        algorithm,
        rounds=5,
        cohort=3,
        work=fk.Work(epochs=1, batch_size=3),
        execution=fk.Execution("serial", checkpoint_every=2, keep_client_states=keep_client_states),
        run_dir=path,
        resume=True,
    )


def attempt(job: Callable[[], object]) -> tuple[bool, Any]:
    """Do a job in a child; return whether it lived, and what it returned."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.write(write, json.dumps(job()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        told = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in {0, -signal.SIGKILL}:
        raise SystemExit(f"an attempt failed with {status}")
    return status == 0, json.loads(told) if told else None


def import_ahead(job: Callable[[], object]) -> None:
    """Import here what a job imports when it comes to need it: not each of its many children again."""

    def imported() -> list[str]:
        before = set(sys.modules)
        job()
        return sorted(set(sys.modules) - before)

    for module in attempt(imported)[1]:
        with suppress(Exception):  # some are made by others, some warn of their age
            importlib.import_module(module)


def run(name: str, path: Path, event: int = 0, point: int = 0) -> bool:
    """Start or resume a run that is killed at an instant; return whether it lived."""

    def job() -> None:
        watch_points(point)
        if event:
            sys.setprofile(kill_at_event(event))
        train(name, path)

    return attempt(job)[0]


def instants(name: str, path: Path) -> tuple[int, int]:
    """Run to the end; return how many changes of the disk and calls of functions that takes."""

    def job() -> tuple[int, int]:
        changes, calls = watch_points(0), [0]

        def profiler(_frame: object, event: str, _argument: object) -> None:
            calls[0] += event in {"call", "c_call"}

        sys.setprofile(profiler)
        train(name, path)
        sys.setprofile(None)
        return changes[0], calls[0]

    return attempt(job)[1]


def left(name: str, path: Path) -> dict[str, Any]:
    """Return all that a finished run leaves but for timings."""
    loaded = Checkpoints(path).read(report=sys.exit)
    assert loaded is not None
    memories = sorted(
        (client, {n: t.tolist() for n, t in named.items()}) for client, named in loaded.memories
    )
    return {
        "run": name,
        "model": (path / "model.safetensors").read_bytes().hex(),
        "metrics": (path / "metrics.jsonl").read_text(),
        "rounds timed": len((path / "timings.jsonl").read_text().splitlines()),
        "server": {n: t.tolist() for n, t in loaded.tensors.items()},
        "memories": memories,
        "left out": loaded.not_kept,
        "files": sorted(str(p.relative_to(path)) for p in path.rglob("*")),
        "unfinished": [p.name for p in path.rglob(".*.tmp")],
    }


def tear(path: Path) -> None:
    """Leave half a line behind, as a kill inside a write does."""
    if (path / "metrics.jsonl").exists():
        with (path / "metrics.jsonl").open("a") as file:
            file.write('{"round": 5, "coh')


def randomly(name: str, folder: Path, calls: int, rng: random.Random) -> int:
    """Kill runs at random instants, each several times; return how often in all."""
    kills = 0
    for life in range(LIVES):
        path = folder / str(life)
        for _ in range(KILLS):
            killed = not run(name, path, event=rng.randrange(1, calls // 2))
            kills += killed
            if killed and rng.random() < 0.5:
                tear(path)
        run(name, path)
    return kills


def at_points(name: str, folder: Path, changes: int) -> int:
    """Kill a run just before each change of the disk; return how often in all."""
    kills = 0
    for point in range(1, changes + 1):
        path = folder / f"at-{point}"
        kills += not run(name, path, point=point)
        run(name, path)
    return kills


def main(scratch: Path, names: list[str]) -> None:
    report = {}
    import_ahead(lambda: train("relaxed", scratch / "first"))
    for name in names:
        rng = random.Random(name)
        changes, calls = instants(name, scratch / name)
        folder = scratch / f"{name}-killed"
        folder.mkdir()
        kills = randomly(name, folder, calls, rng)
        if name in EVERY_POINT:
            kills += at_points(name, folder, changes)
        paths = [scratch / name, *sorted(folder.iterdir())]
        whole, *ends = attempt(lambda name=name, paths=paths: [left(name, path) for path in paths])[1]
        report[name] = {"kills": kills, "changes": changes, "whole": whole, "ends": ends}
    (scratch / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
