"""The manifest: all that a later reader needs to judge, repeat or go on with a run."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import fedkeel
from fedkeel.algorithm import Algorithm
from fedkeel.errors import StorageError
from fedkeel.methods.stages import Stages
from fedkeel.running.run_directory import RunDirectory
from fedkeel.running.session import Loop


def manifest_of(loop: Loop, given: Stages, cohort: int | float) -> dict[str, Any]:
    """Return all that a later reader needs to judge or repeat this run."""
    federation, task = loop.setting.federation, loop.setting.task
    initial = hashlib.sha256(loop.oracle.point.cpu().numpy().tobytes())
    initial.update(loop.oracle.buffers.cpu().numpy().tobytes())
    algorithm: Algorithm | Stages = given if len(given.parts) > 1 else given.parts[0].method
    identity: dict[str, Any] = {
        "task": {**task.describe(), "initial": initial.hexdigest()},
        "federation": federation.fingerprint(),
        "algorithm": repr(algorithm),
        "work": repr(loop.setting.work),
        "cohort": cohort,
        "sampling": loop.population.sampling,
        "weighting": "uniform" if loop.population.weights is None else "samples",
        "reducer": repr(loop.reducer),
        "seed": loop.setting.seed,
        "eval_every": loop.eval_every,
        "device": loop.setting.device.type,
    }
    if loop.panel.asked:
        identity["probes"] = [repr(probe) for probe in loop.panel.asked]
    if given.needs_horizon or loop.setting.work.needs_horizon:
        identity["rounds"] = loop.rounds
    return {
        "identity": identity,
        "rounds": loop.rounds,
        "engine": loop.engine.name,
        "threads": loop.engine.threads,
        "engine_choice": None if loop.choice is None else loop.choice.describe(),
        "data": {
            **federation.origin,
            "clients": len(federation),
            "held_out": federation.held_out,
            "samples": int(federation.sizes.sum()),
            "judged_on": "test set" if federation.test is not None else "all clients' data",
        },
        "versions": {
            "fedkeel": fedkeel.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "platform": sys.platform,
        },
    }


def describe(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what experiment.toml says of a run made from Python objects: for reading, not for rerunning."""
    identity = manifest["identity"]
    return {
        "made_from": "Python: resume with fedkeel.train(…, run_dir=…, resume=True)",
        "method": identity["algorithm"],
        "rounds": manifest["rounds"],
        "cohort": identity["cohort"],
        "seed": identity["seed"],
        "work": identity["work"],
        "task": identity["task"],
        "data": manifest["data"],
    }


def same_experiment(directory: RunDirectory, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of the run that is here, if it is of the same experiment."""
    before = directory.manifest()
    told, asked = before["identity"], manifest["identity"]
    for key in {**told, **asked}:
        if told.get(key) != asked.get(key):
            raise StorageError(
                f"{directory.path} belongs to another experiment: its {key} is {told.get(key)!r}, "
                f"not {asked.get(key)!r}; choose another directory or the same settings"
            )
    return before
