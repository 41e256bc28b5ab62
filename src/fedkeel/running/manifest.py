"""The manifest: all that a later reader needs to understand, repeat or go on with a run."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedkeel.algorithm import Algorithm
from fedkeel.data import Federation
from fedkeel.errors import StorageError
from fedkeel.methods.stages import Stages
from fedkeel.running.round import RunContext
from fedkeel.running.run_directory import RunDirectory
from fedkeel.version import __version__


def manifest_of(context: RunContext) -> dict[str, Any]:
    """Return all that a later reader needs to understand or repeat this run."""
    federation, identity = context.settings.federation, identity_of(context)
    return {
        "identity": identity,
        "rounds": context.settings.rounds,
        "engine": context.engine.name,
        "threads": context.engine.threads,
        "engine_choice": context.choice.describe(),
        "data": _data_of(federation),
        "versions": {
            "fedkeel": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "platform": sys.platform,
        },
    }


def _data_of(federation: Federation) -> dict[str, Any]:
    """Return what a reader wants to know of the data; which data it is, the identity's hash says."""
    augment = {} if federation.augment is None else {"augment": repr(federation.augment)}
    return {
        **federation.origin,
        **augment,
        "clients": len(federation),
        "held_out": federation.held_out,
        "samples": int(federation.sizes.sum()),
        "evaluated_on": "test set" if federation.test is not None else "all clients' data",
    }


def identity_of(context: RunContext) -> dict[str, Any]:
    """Return what two runs must share to be the same: everything that decides their numbers."""
    settings, oracle = context.settings, context.oracle
    initial = hashlib.sha256(oracle.point.cpu().numpy().tobytes())
    initial.update(oracle.buffers.cpu().numpy().tobytes())
    stages = settings.stages
    algorithm: Algorithm | Stages = stages if len(stages.parts) > 1 else stages.parts[0].method
    identity: dict[str, Any] = {
        "task": {**settings.task.describe(), "initial": initial.hexdigest()},
        "federation": settings.federation.fingerprint(),
        "algorithm": repr(algorithm),
        "work": repr(settings.work),
        **settings.plain,
        "reducer": repr(settings.reducer),
        "device": oracle.device.type,
    }
    if context.panel.asked:
        identity["probes"] = [repr(probe) for probe in context.panel.asked]
    if not (stages.needs_horizon or settings.work.needs_horizon):
        del identity["rounds"]  # a run may be made longer
    return identity


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
            why = _other_data(before["data"], manifest["data"]) if key == "federation" else ""
            raise StorageError(
                f"{directory.path} belongs to another experiment: its {key} is {told.get(key)!r}, "
                f"not {asked.get(key)!r}{why}; choose another directory or the same settings"
            )
    return before


def _other_data(told: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Say in which of their descriptions two federations differ: two hashes tell nobody."""
    differing = [key for key in {**told, **asked} if told.get(key) != asked.get(key)]
    listed = ", ".join(
        f"{key} {_shown(told.get(key))} instead of {_shown(asked.get(key))}" for key in differing
    )
    return f" (it has {listed})" if differing else ""


def _shown(value: Any) -> str:
    return "none" if value is None else " + ".join(value) if isinstance(value, list) else str(value)
