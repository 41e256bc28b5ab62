"""Rounds of fedkeel's engines and of Flower's simulation against workers, interleaved."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from benchlib.contender import Contender, Failed, ours, peer
from benchlib.plan import Log
from benchlib.race import interleave
from benchlib.workloads import Workload, make_data

WORKERS = (1, 2)
FLOWER = "Flower's simulation"


def measure(
    workload: Workload, *, repetitions: int, budget: float, flower: Path | None, log: Log
) -> dict[str, Any]:
    """Return each contender's seconds per round; who does not run is told in a note."""
    notes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        data = str(Path(directory) / "data.pt")
        torch.save(make_data(workload), data)
        running = _started(_made(workload, data, flower), notes, log)
        try:
            for one in running.values():  # now that none of the others is starting
                one.calibrate()
            columns = interleave(
                running,
                repetitions,
                budget=budget,
                least=min(3, repetitions),
                failed=lambda name, problem: notes.update({name: str(problem)}),
                report=lambda text: log.say(f"{workload.name}: repetition {text}"),
            )
            facts = {name: one.facts for name, one in running.items()}
        finally:
            for one in running.values():
                one.close()
    return {"workload": workload.to_json(), "seconds": columns, "facts": facts, "notes": notes}


def _made(workload: Workload, data: str, flower: Path | None) -> dict[str, Contender]:
    """Start them all: most of that is waiting."""
    made = {"serial": ours(workload, data, "serial", engine="serial", threads=1)}
    for engine in ("processes", "ray"):
        for count in WORKERS:
            name = _name(engine, count)
            made[name] = ours(workload, data, name, engine=engine, workers=count, threads=1)
    for count in WORKERS if flower is not None else ():
        made[_name(FLOWER, count)] = peer("flwr", flower, workload, data, threads=1, workers=count)
    return made


def _name(who: str, workers: int) -> str:
    return f"{who}, {workers} worker{'s' * (workers > 1)}"


def _started(made: dict[str, Contender], notes: dict[str, str], log: Log) -> dict[str, Contender]:
    running = {}
    for name, one in made.items():
        log.say(f"{one.workload.name}: waiting for {name}")
        try:
            one.start()
            running[name] = one
        except Failed as problem:
            notes[name] = str(problem)
    return running
