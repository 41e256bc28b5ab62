"""Kills runs with SIGKILL at random moments, many of them inside a checkpoint write, and resumes them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from harness import Progress, Tally, random_of
from killing import attempt, import_ahead, kill_at_event, left, tear
from torch import nn

import fedkeel as fk
from fedkeel.methods import METHODS
from fedkeel.probes import PROBES, Probe
from fedkeel.running.checkpoints import Checkpoints

NAME = "kills"
FAULT = (
    "SIGKILL at random moments over all methods, probes, stages and local engines (compiled stacked too), a "
    "third of them inside a checkpoint write, some several times in one run, some with a torn line"
)
MUST_HOLD = "the same SHA-256 of model, memories and history as without a kill"
COUNT = 300
ROUNDS = 6


class Case(NamedTuple):
    """A run that is killed: its method, engine and probes."""

    name: str
    method: Any
    engine: str = "serial"
    probes: tuple[Probe, ...] = ()


def cases() -> list[Case]:
    """Return every method, the plug-ins, all probes, and the engines."""
    methods = [Case(kind.__name__, kind()) for kind in METHODS]
    wrapped = [
        Case("relaxed SCAFFOLD", fk.relaxed(fk.SCAFFOLD(), beta=0.1)),
        Case("sharp FedCM", fk.sharp(fk.FedCM(), rho=0.05)),
        Case("stages", fk.stages((fk.FedDyn(), 3), fk.FedAvg())),
        Case("stages by fraction", fk.stages((fk.SCAFFOLD(), 0.5), fk.relaxed(fk.FedAvg(), beta=0.1))),
    ]
    watched = [Case(f"FedDyn with {kind.__name__}", fk.FedDyn(), probes=(kind(),)) for kind in PROBES]
    engines = [
        Case(f"{method.__name__}, {engine}", method(), engine)
        for engine in ("stacked-uncompiled", "processes")
        for method in (fk.SCAFFOLD, fk.FedDyn)
    ]
    return [*methods, *wrapped, *watched, *engines, Case("SCAFFOLD, stacked", fk.SCAFFOLD(), "stacked")]


def run(scratch: Path, count: int, seed: int, progress: Progress) -> Tally:
    tally, known = Tally(), cases()
    torch.set_num_threads(1)
    whole: dict[str, dict[str, Any]] = {}
    import_ahead(lambda: train(known[0], scratch / "first"))
    for number in progress.tries(count):
        rng, case = random_of(seed, number), case_of(number, known)
        if case.name not in whole:
            whole[case.name] = undisturbed(case, scratch / f"whole-{len(whole)}")
        inside = number % 3 == 0
        kill_and_resume(number, rng, case, scratch / str(number), whole[case.name], tally, inside=inside)
    return tally


def case_of(number: int, known: list[Case]) -> Case:
    """Return the case of a try: all in turn; the compiled engine, which takes long, every sixtieth time."""
    *others, compiled = known
    return compiled if number % 60 == 40 else others[number % len(others)]


def kill_and_resume(
    number: int,
    rng: random.Random,
    case: Case,
    path: Path,
    whole: Mapping[str, Any],
    tally: Tally,
    *,
    inside: bool,
) -> None:
    """Kill a run once or more, go on with it, and compare."""
    kills = 0
    for _ in range(rng.choice([1, 1, 2])):
        moment = rng.randrange(1, whole["inside" if inside else "calls"] + 1)
        kills += not attempt(lambda moment=moment: killed(case, path, moment, inside=inside))[0]
        if rng.random() < 0.3:
            tear(path)
    tally.note("kills inside a checkpoint write" if inside else "kills elsewhere", kills)
    tally.note(f"kills with {case.engine}", kills)
    try:
        found = attempt(lambda: (train(case, path), digest(path))[1])[1]
    except SystemExit as problem:
        tally.fail(number, f"{case.name}: could not be resumed: {problem}")
        return
    if found == whole["digest"]:
        tally.exact += 1
    else:
        differing = [name for name in found if found[name] != whole["digest"][name]]
        tally.fail(number, f"{case.name}: {', '.join(differing)} ended otherwise")


def train(case: Case, path: Path, profiler: Callable[..., None] | None = None) -> None:
    """Train, or go on; a profiler watches all, of a compiled engine what comes after the first round."""
    watch = None if profiler is None or case.engine != "stacked" else lambda _: sys.setprofile(profiler)
    if profiler is not None and watch is None:
        sys.setprofile(profiler)
    generator = torch.Generator().manual_seed(0)
    clients = [(torch.randn(6, 3, generator=generator), torch.arange(6) % 2) for _ in range(8)]
    torch.manual_seed(0)
    fk.train(
        fk.Task(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))),
        fk.Federation.from_arrays(clients, test=clients[0]),
        case.method,
        rounds=ROUNDS,
        cohort=3,
        work=fk.Work(epochs=1, batch_size=3),
        execution=fk.Execution(
            case.engine,
            threads=1,
            workers=2 if case.engine == "processes" else None,
            checkpoint_every=2,
            keep_client_states=True,
        ),
        probes=case.probes,
        run_dir=path,
        resume=True,
        callbacks=watch,
        progress=False,
    )
    sys.setprofile(None)


def killed(case: Case, path: Path, moment: int, *, inside: bool) -> None:
    """Train until the n-th call of a function, of all or of those inside a checkpoint write."""
    os.fsync = lambda _: None
    profiler = kill_at_event(moment)
    if inside:
        watch_checkpoints(profiler)
    train(case, path, None if inside else profiler)


def watch_checkpoints(profiler: Callable[..., None]) -> None:
    write = Checkpoints.write

    def watched(*args: Any, **kwargs: Any) -> None:
        sys.setprofile(profiler)
        write(*args, **kwargs)
        sys.setprofile(None)

    Checkpoints.write = watched  # type: ignore[method-assign]


def undisturbed(case: Case, path: Path) -> dict[str, Any]:
    """Run to the end; return how many calls that takes, in all and inside checkpoints, and what it leaves."""

    def inside() -> dict[str, Any]:
        os.fsync = lambda _: None
        profiler, calls = counting()
        watch_checkpoints(profiler)
        train(case, path)
        return {"inside": calls[0], "digest": digest(path)}

    def everywhere() -> int:
        profiler, calls = counting()
        train(case, path.with_name(f"{path.name}-counted"), profiler)
        return calls[0]

    return {**attempt(inside)[1], "calls": attempt(everywhere)[1]}


def counting() -> tuple[Callable[..., None], list[int]]:
    """Return a profiler that counts calls of functions, and its count."""
    calls = [0]

    def profiler(_frame: object, event: str, _argument: object) -> None:
        calls[0] += event in {"call", "c_call"}

    return profiler, calls


def digest(path: Path) -> dict[str, str]:
    """Return hashes of all that a finished run leaves but for timings."""
    found = left("", path)
    return {
        name: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
        for name, value in found.items()
    }
