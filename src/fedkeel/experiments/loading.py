"""Reads a run back from its directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import nn

from fedkeel.common.client_table import ClientTable
from fedkeel.common.columns import columns_in
from fedkeel.common.errors import ConfigError, FedkeelError, StorageError
from fedkeel.core.task import Task
from fedkeel.engines.contract import Choice
from fedkeel.experiments.experiment import Experiment
from fedkeel.running.ending import BEST_FILE, MODEL_FILE
from fedkeel.running.result import BestRound, Result, Trained
from fedkeel.running.run_directory import (
    has_end_file,
    read_clients,
    read_end_file,
    read_manifest,
    read_rows,
)

_UNFINISHED = "{}: this run is not finished: go on with it (resume=True), then its model is there"


def load(run_dir: str | Path, task: Task | None = None) -> Result:
    """Read a run back from its directory: history, manifest, model, best round, the choice of the engine.

    A run that was made from an experiment file knows its model. Of one that was made in Python give the
    `task`, whose module says what the model is; without it everything but models is there. The server's state
    and the client states are not read: `train(…, run_dir=…, resume=True)` goes on with them, after the
    last round only where the run was to keep them (`keep_client_states=True`).
    """
    if not isinstance(run_dir, str | os.PathLike):
        raise ConfigError(f"load: run_dir = {run_dir!r}: give the path of a run's directory")
    path = Path(run_dir)
    manifest, rows = read_manifest(path), read_rows(path)
    transform, missing = None, "give its task, as in fk.load(run_dir, task)"
    if task is None:
        try:
            experiment = Experiment.load(path)
            federation = experiment.federation()
            task, transform = experiment.drawn_task(federation), federation.transform
        except StorageError:
            raise
        except FedkeelError as problem:  # it was made in Python, or its data is not here
            missing = f"{missing} ({problem})"
    else:
        task = task.built(manifest["identity"]["seed"])
    end = manifest.get("end") or {"rounds": manifest["rounds"], "stopped_by": None, "best": None}
    over = end["rounds"] == len(rows)
    told, clients = manifest["engine_choice"], read_clients(path)
    return Result(
        method=manifest["identity"]["method"],
        history=rows,
        trained=_model(path / MODEL_FILE, task, missing) if over else _UNFINISHED.format(path),
        server=None,
        client_states={},
        manifest=manifest,
        choice=Choice(manifest["engine"], manifest["threads"], told["reason"], told["microseconds_per_step"]),
        run_dir=path,
        best=_best(path, end, rows, task, missing) if over else None,
        stopped_by=end["stopped_by"] if over else None,
        client_table=ClientTable(clients) if over and clients else None,
        task=task,
        transform=transform,
        labels=manifest["data"].get("labels"),
        columns=tuple(columns_in(manifest)),
    )


def _best(
    path: Path, end: Mapping[str, Any], rows: list[dict[str, Any]], task: Task | None, missing: str
) -> BestRound | None:
    if end["best"] is None:
        return None
    round, column = end["best"]["round"], end["best"]["column"]
    file = MODEL_FILE if round + 1 == len(rows) else BEST_FILE
    model, selected_on = _model(path / file, task, missing), end["best"].get("selected_on")
    return BestRound(round, rows[round], column, model, selected_on)


def _model(file: Path, task: Task | None, missing: str) -> Trained:
    """Return the module with the weights of a file, or why there is none."""
    if not has_end_file(file.parent, file.name):
        return _UNFINISHED.format(file.parent)
    if task is None:
        return f"{file.parent}: what the model is made of is not known: {missing}"
    module: nn.Module = deepcopy(task.module)
    content = read_end_file(file.parent, file.name)
    try:
        module.load_state_dict(load_tensors(content))
    except SafetensorError as problem:
        raise StorageError(f"{file}: cannot be read: {problem}") from None
    except RuntimeError as problem:
        why = str(problem).splitlines()[-1].strip()
        raise ConfigError(
            f"{file} does not fit {type(module).__name__}: give the task that was trained ({why})"
        ) from None
    return module.eval()
