"""What pages and exports show of runs on disk: each with its rows, manifest, settings and clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkeel.common.errors import StorageError
from fedkeel.common.older import settings_now
from fedkeel.common.tomlfile import flat, parse
from fedkeel.report.page.runs import ReportedRun
from fedkeel.report.tables import UNFINISHED, Trial
from fedkeel.running.run_directory import read_clients, read_experiment, read_manifest, read_rows


def reported_run(directory: Path, trial: Trial | None = None) -> ReportedRun:
    """Return the run in a directory; `trial` is given where its name or how it ended are known already."""
    manifest = read_manifest(directory)
    settings = _settings(directory)
    return ReportedRun(
        trial or _trial(directory, manifest, settings),
        manifest,
        settings,
        read_clients(directory),
        str(directory),
    )


def _trial(directory: Path, manifest: Mapping[str, Any], settings: Mapping[str, Any]) -> Trial:
    rows = read_rows(directory)
    ended = (manifest.get("end") or {}).get("rounds") == len(rows) or len(rows) >= manifest["rounds"]
    method = str(settings.get("method", manifest["identity"]["method"]))
    return Trial(method, manifest["identity"]["seed"], rows, None if ended else UNFINISHED)


def _settings(directory: Path) -> dict[str, Any]:
    """Return the settings of a run as it was written; what Python made from objects has few."""
    try:
        return flat(settings_now(parse(read_experiment(directory))))
    except ValueError as problem:
        raise StorageError(
            f"{directory / 'experiment.toml'}: cannot be read as TOML: {problem}: restore it, or start anew "
            "in another directory"
        ) from None


def with_unique_names(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Return runs whose names and seeds are their own: by the settings they differ in, else by directory."""
    named = Counter((run.trial.label, run.trial.seed) for run in runs)
    twice = {method for (method, _), count in named.items() if count > 1}
    found = []
    for run in runs:
        alike = [one for one in runs if one.trial.label == run.trial.label]
        keys = [
            key
            for key in run.settings
            if key not in ("seed", "method") and len({str(one.settings.get(key)) for one in alike}) > 1
        ]
        if run.trial.label in twice or keys:
            label = ", ".join(f"{key}={run.settings[key]}" for key in keys) or Path(run.directory or "").name
            run = run._replace(trial=run.trial._replace(label=f"{run.trial.label} [{label}]"))  # noqa: PLW2901
        found.append(run)
    return found
