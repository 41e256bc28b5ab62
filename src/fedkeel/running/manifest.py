"""The manifest: all that a later reader needs to understand, repeat or go on with a run."""

from __future__ import annotations

import hashlib
import inspect
import platform
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkeel.common.errors import StorageError
from fedkeel.common.identity import stable_name
from fedkeel.common.jsonfiles import FORMAT
from fedkeel.common.version import __version__
from fedkeel.core.algorithm import Algorithm
from fedkeel.core.oracle import Oracle
from fedkeel.core.work import Work
from fedkeel.data import Federation
from fedkeel.data.labels import class_names, count_labels
from fedkeel.methods.stages import Stages
from fedkeel.running.round import RunContext
from fedkeel.running.run_directory import RunDirectory, read_manifest
from fedkeel.settings.options import DEPLOYED
from fedkeel.settings.run_settings import RunSettings

_CLIENTS_COUNTED, _CLASSES_COUNTED = 100, 200  # at most, for the picture of the split
_SAME_BITS = {
    "serial",
    "processes",
    "ray",
    DEPLOYED,
}  # engines that take a client's steps one after the other
_EVALUATED_ON = {"test": "test set", "clients": "all clients' data", "nothing": "nothing"}


def manifest_of(context: RunContext) -> dict[str, Any]:
    """Return all that a later reader needs to understand or repeat this run."""
    settings, identity = context.settings, identity_of(context)
    return {
        "format": FORMAT,
        "identity": identity,
        "rounds": settings.rounds,
        "engine": context.engine.name,
        "threads": context.engine.threads,
        "engine_choice": context.choice.describe(),
        "data": {**_data_of(settings.federation), "evaluated_on": _EVALUATED_ON[settings.evaluated_on]},
        **({} if settings.attack is None else {"hostile": sorted(settings.hostile)}),
        **_labels_of(settings.federation),
        "columns": [column.as_table() for column in context.panel.declared(context.oracle.layout)],
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
    augment = {} if federation.augment is None else {"augment": stable_name(federation.augment)}
    return {
        **federation.origin,
        **augment,
        "clients": len(federation),
        "held_out": federation.held_out,
        "samples": int(federation.sizes.sum()),
        **_validation_of(federation),
    }


def _labels_of(federation: Federation) -> dict[str, Any]:
    """Return the class counts of the first clients, a line each; nothing where there are no classes."""
    counts = count_labels(federation, _CLIENTS_COUNTED)
    if counts is None or counts.shape[1] > _CLASSES_COUNTED:
        return {}
    names = class_names(federation, counts.shape[1])
    lines = [" ".join(map(str, row)) for row in counts.tolist()]
    return {"label_counts": {"classes": list(names), "clients": lines}}


def _validation_of(federation: Federation) -> dict[str, int]:
    if federation.validation is None:
        return {}
    return {"validation_samples": len(federation.validation.first(len(federation)))}


def identity_of(context: RunContext) -> dict[str, Any]:
    """Return what two runs must share to be the same: everything that decides their numbers."""
    settings, oracle = context.settings, context.oracle
    stages = settings.stages
    method: Algorithm | Stages = stages if len(stages.parts) > 1 else stages.parts[0].method
    identity: dict[str, Any] = {
        "task": {**settings.task.describe(), **_weights(oracle)},
        "federation": settings.federation.fingerprint(),
        "method": stable_name(method),
        "work": _name_of_work(settings.work),
        **settings.plain,
        "evaluate_on": settings.evaluated_on,
        "reducer": stable_name(settings.reducer),
        "device": oracle.device.type,
    }
    if settings.attack is not None:
        identity["attack"] = stable_name(settings.attack)
    if context.panel.asked:
        identity["probes"] = [stable_name(probe) for probe in context.panel.asked]
    if settings.faults is not None:
        identity["faults"] = stable_name(settings.faults)
    if not (stages.needs_horizon or settings.work.needs_horizon):
        del identity["rounds"]  # a run may be made longer
    return identity


def _name_of_work(work: Work) -> str:
    """Return the name of local work; a schedule of a user's own class goes by its source too."""
    name, kind = stable_name(work), type(work.schedule)
    call = getattr(kind, "__call__", None)  # noqa: B004  its source is asked for
    own = inspect.isfunction(call) and kind.__module__.partition(".")[0] != "fedkeel"
    return f"{name}, schedule {stable_name(call)}" if own else name


def _weights(oracle: Oracle) -> dict[str, str]:
    """Return hashes of the weights that a run begins with, and of those that it never trains."""
    frozen = [p.detach() for p in oracle.module.parameters() if not p.requires_grad]
    hashes = {"initial": _hash(oracle.point, oracle.buffers)}
    return {**hashes, "frozen": _hash(*frozen)} if frozen else hashes


def _hash(*tensors: Tensor) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def describe(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what experiment.toml says of a run made from Python objects: for reading, not for rerunning."""
    identity = manifest["identity"]
    return {
        "made_from": "Python: resume with fedkeel.train(…, run_dir=…, resume=True)",
        "method": identity["method"],
        "rounds": manifest["rounds"],
        "cohort": identity["cohort"],
        "seed": identity["seed"],
        "work": identity["work"],
        "task": identity["task"],
        "data": manifest["data"],
    }


def plain_settings(
    manifest: Mapping[str, Any], experiment: Mapping[str, Any] | None, run_dir: str | Path | None
) -> dict[str, Any]:
    """Return what callbacks hear of a run before it begins."""
    told = describe(manifest) if experiment is None else experiment
    return {
        **{key: value for key, value in told.items() if key != "made_from"},
        "engine": manifest["engine"],
        "threads": manifest["threads"],
        "versions": manifest["versions"],
        "run_dir": None if run_dir is None else str(run_dir),
    }


def same_experiment(directory: RunDirectory, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of the run that is here, if it is of the same experiment.

    Its checkpoints hold the weights it began with: a model with others may go on with it.
    """
    before = read_manifest(directory.path)
    told, asked = (
        {
            **one["identity"],
            "evaluate_on": _evaluated_on(one),
            "task": {**one["identity"]["task"], "initial": None},
        }
        for one in (before, manifest)
    )
    for key in {**told, **asked}:
        if told.get(key) != asked.get(key):
            why = _other_data(before["data"], manifest["data"]) if key == "federation" else ""
            raise StorageError(
                f"{directory.path} belongs to another experiment: its {key} is {told.get(key)!r}, "
                f"not {asked.get(key)!r}{why}; choose another directory or the same settings"
            )
    return before


def evaluated_as_before(settings: RunSettings, manifest: Mapping[str, Any]) -> RunSettings:
    """Return the settings with `evaluate_on`, where that is not asked for, as the run was begun."""
    if settings.evaluate_on is not None:
        return settings
    return settings.model_copy(update={"evaluate_on": _evaluated_on(manifest)})


def _evaluated_on(manifest: Mapping[str, Any]) -> str:
    """Return what a run was begun to be evaluated on; its data says so where it had no setting for it."""
    told = manifest["identity"].get("evaluate_on")
    return told or next(
        key for key, text in _EVALUATED_ON.items() if text == manifest["data"]["evaluated_on"]
    )


def warn_of_other_bits(before: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    """Warn where a run goes on by other means than it was begun with: sums may come out in another order.

    Engines that take a client's steps one after the other give the same bits.
    """
    told, now = (
        {"engine": one["engine"], "threads": one["threads"], **one["versions"]} for one in (before, manifest)
    )
    if {told["engine"], now["engine"]} <= _SAME_BITS:
        del now["engine"]
    differing = [f"{key} {told.get(key)} (now {now[key]})" for key in now if told.get(key) != now[key]]
    if differing:
        warnings.warn(
            f"the run was begun with {', '.join(differing)}: it goes on, but its last bits may differ from "
            "those of an uninterrupted run",
            stacklevel=4,
        )


def same_start(before: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    """Refuse to begin a run again with other weights, where it has no checkpoint yet."""
    told, asked = (one["identity"]["task"]["initial"] for one in (before, manifest))
    if told != asked:
        raise StorageError(
            "the run was begun with other initial weights, and has no checkpoint to take them from: let the "
            "run's seed draw them, as in Task(lambda: Net()), or call torch.manual_seed before the model is "
            "made, or restore what model.init names, or choose another directory"
        )


def _other_data(told: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Say in which of their descriptions two federations differ: two hashes tell nobody."""
    differing = [key for key in {**told, **asked} if told.get(key) != asked.get(key)]
    listed = ", ".join(
        f"{key} {_shown(told.get(key))} instead of {_shown(asked.get(key))}" for key in differing
    )
    return f" (it has {listed})" if differing else ""


def _shown(value: Any) -> str:
    return "none" if value is None else " + ".join(value) if isinstance(value, list) else str(value)
