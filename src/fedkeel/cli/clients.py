"""`fedkeel show RUN --per-client`: how the model of a run does client by client."""

from __future__ import annotations

import json
from pathlib import Path

from fedkeel.common.client_table import ClientTable
from fedkeel.common.progress import console
from fedkeel.running.run_directory import read_clients, read_manifest


def show_clients(directory: Path, *, as_json: bool) -> None:
    """Print the table per client: as the run has kept it, else evaluated now on clients' training data."""
    table = _kept(directory) or _evaluated(directory)
    if as_json:
        print(json.dumps(list(table.rows), ensure_ascii=False, indent=2))
    else:
        console().print(repr(table), markup=False, soft_wrap=True)


def _kept(directory: Path) -> ClientTable | None:
    read_manifest(directory)  # or there is no run
    rows = read_clients(directory)
    return ClientTable(rows) if rows else None


def _evaluated(directory: Path) -> ClientTable:
    from fedkeel.experiments.experiment import Experiment  # noqa: PLC0415  pydantic takes its time
    from fedkeel.experiments.loading import load  # noqa: PLC0415  loads PyTorch

    return load(directory).per_client(Experiment.load(directory).federation())
