"""Kills runs with SIGKILL at many instants, resumes them, and tells how they ended. Run by test_kill.py.

A child is forked for every attempt from this process, which has imported everything and computed nothing: it has
one thread, and an attempt costs milliseconds. A random instant is a random one of the run's Python function
calls, so every failure can be repeated.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fedkeel as fk
from fedkeel.checkpoints import Checkpoints

ALGORITHMS = {
    "SCAFFOLD": fk.SCAFFOLD(),
    "stages": fk.stages((fk.FedDyn(), 4), fk.FedAvg()),
    "relaxed": fk.relaxed(fk.SCAFFOLD(), beta=0.1),
}
POINTS = ("fsync", "replace", "mkdir", "unlink", "rmdir")  # what changes the disk, one by one
RANDOM_KILLS = 7


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


def watch_points(number: int, after: bool) -> list[int]:
    """End the process just before or after the n-th change of the disk; return the running count."""
    count = [0]

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            mine = count[0] == number
            if mine and not after:
                die()
            result = function(*args, **kwargs)
            if mine:
                die()
            return result

        return call

    for name in POINTS:
        setattr(os, name, watched(getattr(os, name)))
    return count


def train(name: str, path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    clients = [(torch.randn(6, 3, generator=generator), torch.arange(6) % 2) for _ in range(8)]
    torch.manual_seed(0)
    fk.train(
        fk.Task(nn.Linear(3, 2)),
        fk.Federation.from_arrays(clients),
        ALGORITHMS[name],
        rounds=7,
        cohort=3,
        work=fk.Work(epochs=1, batch_size=3),
        engine="serial",
        run_dir=path,
        resume=True,
        checkpoint_every=2,
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


def run(name: str, path: Path, event: int = 0, point: int = 0, after: bool = False) -> tuple[bool, Any]:
    """Start or resume a run that is killed at an instant; return whether it lived, and how many instants."""

    def job() -> list[int]:
        changes, calls = watch_points(point, after), [0]
        profiler = kill_at_event(event)
        if event == 0:
            path.mkdir(exist_ok=True)

            def profiler(_frame: object, kind: str, _argument: object) -> None:
                calls[0] += kind in {"call", "c_call"}

        sys.setprofile(profiler)
        train(name, path)
        sys.setprofile(None)
        return [changes[0], calls[0]]

    return attempt(job)


def left(name: str, path: Path) -> dict[str, Any]:
    """Return all that a finished run leaves but for timings."""
    loaded = Checkpoints(path).read(report=lambda text: sys.exit(text))
    assert loaded is not None
    memories = sorted(
        (client, {n: t.tolist() for n, t in named.items()}) for client, named in loaded.memories
    )
    return {
        "algorithm": name,
        "model": (path / "model.safetensors").read_bytes().hex(),
        "metrics": (path / "metrics.jsonl").read_text(),
        "rounds timed": len((path / "timings.jsonl").read_text().splitlines()),
        "server": {n: t.tolist() for n, t in loaded.tensors.items()},
        "memories": memories,
        "files": sorted(p.name for p in path.iterdir()),
        "unfinished": [p.name for p in path.rglob(".*.tmp")],
    }


def tear(path: Path) -> None:
    """Leave half a line behind, as a kill inside a write does."""
    if (path / "metrics.jsonl").exists():
        with (path / "metrics.jsonl").open("a") as file:
            file.write('{"round": 5, "coh')


def randomly(name: str, path: Path, calls: int, rng: random.Random) -> int:
    """Kill a run at random instants, one after another; return how often it was."""
    kills = 0
    for _ in range(RANDOM_KILLS):
        lived, _ = run(name, path, event=rng.randrange(1, calls))
        kills += not lived
        if rng.random() < 0.5 and not lived:
            tear(path)
    return kills


def at_points(name: str, path: Path, points: range) -> int:
    """Kill a run just before, then just after each of some changes of the disk; return how often it was."""
    kills = 0
    for point in points:
        for after in (False, True):
            lived, _ = run(name, path / f"{point}-{after}", point=point, after=after)
            kills += not lived
            run(name, path / f"{point}-{after}")
    return kills


def main(scratch: Path, seed: int) -> None:
    rng, report = random.Random(seed), []
    for name in ALGORITHMS:
        _, (changes, calls) = run(name, scratch / name)
        whole = attempt(lambda name=name: left(name, scratch / name))[1]
        path = scratch / f"{name}-random"
        kills = randomly(name, path, calls, rng)
        run(name, path)
        ends = [attempt(lambda name=name, path=path: left(name, path))[1]]
        if name == "SCAFFOLD":
            folder = scratch / f"{name}-points"
            folder.mkdir()
            kills += at_points(name, folder, range(1, changes + 1))
            ends += [attempt(lambda name=name, p=p: left(name, p))[1] for p in sorted(folder.iterdir())]
        report.append({"kills": kills, "instants": [changes, calls], "whole": whole, "ends": ends})
    (scratch / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]))
