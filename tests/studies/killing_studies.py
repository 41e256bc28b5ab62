"""Kills studies before every change of the disk and at random calls. Run by test_kill_studies.py.

It goes on with each until it ends, and tells what it found, and whether a finished part was made again.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from killing import attempt, import_ahead, kill_at_event, watch_points
from torch import nn

import fedkeel as fk
from fedkeel.settings.run_settings import RunSettings
from fedkeel.studies.constants import Effort
from fedkeel.studies.constants import study as constants
from fedkeel.studies.interaction import FeatureSettings
from fedkeel.studies.interaction import study as interaction
from fedkeel.studies.stability import stability

ROUNDS = 3


def settings() -> RunSettings:
    generator = torch.Generator().manual_seed(0)
    clients = [(torch.randn(6, 3, generator=generator), torch.arange(6) % 2) for _ in range(8)]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    return RunSettings(
        task=fk.Task(model),
        federation=fk.Federation.from_arrays(clients).hold_out(2),
        method=fk.SCAFFOLD(),
        rounds=ROUNDS,
        cohort=3,
        work=fk.Work(epochs=1, batch_size=3),
    )


def run_interaction(path: Path) -> Any:
    features = FeatureSettings(every=2, points=12, components=3)
    return [snapshot._asdict() for snapshot in interaction(settings(), features=features, directory=path)]


def run_stability(path: Path) -> Any:
    return stability(settings(), pairs=2, directory=path).as_dict()


def run_constants(path: Path) -> Any:
    effort = Effort(rounds=ROUNDS, points=2, clients=2, close=1, draws=2, products=4)
    return constants(settings(), effort=effort, directory=path).as_dict()


STUDIES: dict[str, Callable[[Path], Any]] = {
    "interaction": run_interaction,
    "stability": run_stability,
    "constants": run_constants,
}


def parts(path: Path) -> dict[str, int]:
    """Return the finished parts and when each was written."""
    return {part.name: part.stat().st_mtime_ns for part in path.glob("*-*.json")}


def run(name: str, path: Path, event: int = 0, point: int = 0) -> tuple[bool, Any]:
    def job() -> object:
        watch_points(point)
        if event:
            sys.setprofile(kill_at_event(event))
        return STUDIES[name](path)

    return attempt(job)


def instants(name: str, path: Path) -> tuple[int, int]:
    """Run to the end; return how many changes of the disk and calls of functions that takes."""

    def job() -> tuple[int, int]:
        changes, calls = watch_points(0), [0]

        def profiler(_frame: object, event: str, _argument: object) -> None:
            calls[0] += event in {"call", "c_call"}

        sys.setprofile(profiler)
        STUDIES[name](path)
        sys.setprofile(None)
        return changes[0], calls[0]

    return attempt(job)[1]


def killed(name: str, path: Path, kills: list[dict[str, int]]) -> tuple[int, bool, Any]:
    """Kill a study at some instants in turn; return how often, if no part was redone, and its end."""
    count, once = 0, True
    before: dict[str, int] = {}
    for kill in [*kills, {}]:
        lived, told = run(name, path, **kill)
        now = parts(path)
        once &= all(now.get(part) == when for part, when in before.items())
        before, count = now, count + (not lived)
    return count, once, told


def main(scratch: Path) -> None:
    rng, report = random.Random(0), {}
    for name, study in STUDIES.items():
        import_ahead(partial(study, scratch / f"{name}-first"))
        whole = run(name, scratch / f"{name}-whole")[1]
        changes, calls = instants(name, scratch / f"{name}-counted")
        plans = [[{"point": point}] for point in range(1, changes + 1)]
        plans += [[{"event": rng.randrange(1, calls)} for _ in range(3)] for _ in range(4)]
        ends = [killed(name, scratch / f"{name}-{index}", plan) for index, plan in enumerate(plans)]
        report[name] = {
            "changes": changes,
            "kills": sum(count for count, _, _ in ends),
            "once": [once for _, once, _ in ends],
            "same": [told == whole for _, _, told in ends],
            "again": run(name, scratch / f"{name}-whole")[1] == whole,
        }
    (scratch / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
