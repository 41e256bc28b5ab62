"""What pages and exports show of runs on disk: each with its rows, manifest, settings and clients."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.errors import StorageError
from fedkeel.common.older import settings_now
from fedkeel.common.tomlfile import flat, parse
from fedkeel.report.page.runs import ReportedRun
from fedkeel.report.tables import UNFINISHED, Trial
from fedkeel.running.run_directory import read_clients, read_experiment, read_manifest, read_rows

# of runs made in Python: the first weights, and the seeds of the split and of the noise
_DECIDED_BY_SEED = ("task.initial", "data.seed", "data.noise_seed")


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


class NamedRuns(NamedTuple):
    """Runs whose names and seeds are their own; `unclear` says why no verdict can be given on them."""

    runs: tuple[ReportedRun, ...]
    unclear: str | None = None


def with_unique_names(runs: Sequence[ReportedRun]) -> NamedRuns:
    """Name runs by the settings that the user varied; what a seed decides is no difference.

    Where runs of one name and seed differ in nothing that is known, they are named by their directories, and
    nobody can say which belong together.
    """
    found, same = [], set[str]()
    for run in runs:
        alike = [one for one in runs if one.trial.label == run.trial.label]
        keys = [key for key in run.settings if key not in ("seed", "method") and _differs(key, alike)]
        label = ", ".join(f"{key}={run.settings[key]}" for key in keys)
        of_seed = [one for one in alike if one.trial.seed == run.trial.seed]
        if len({tuple(str(one.settings.get(key)) for key in keys) for one in of_seed}) < len(of_seed):
            same.add(run.trial.label)
            label = ", ".join([*filter(None, [label]), _own_path(run, alike)])
        if label:
            run = run._replace(trial=run.trial._replace(label=f"{run.trial.label} [{label}]"))  # noqa: PLW2901
        found.append(run)
    if not same:
        return NamedRuns(tuple(found))
    return NamedRuns(
        tuple(found),
        f"No verdict: several runs of {', '.join(sorted(same))} have the same seed and differ in nothing "
        "that is known of them, so it is unclear which belong together; they are named by their directories.",
    )


def _own_path(run: ReportedRun, alike: Sequence[ReportedRun]) -> str:
    """Return the part of a run's directory that others of its name do not share."""
    shared = os.path.commonpath([os.path.abspath(one.directory or "") for one in alike])
    return os.path.relpath(run.directory or "", shared)


def _differs(key: str, alike: Sequence[ReportedRun]) -> bool:
    """Tell whether runs differ in a setting for another reason than their seeds."""
    values: dict[int, set[str]] = {}
    for run in alike:
        values.setdefault(run.trial.seed, set()).add(str(run.settings.get(key)))
    if key in _DECIDED_BY_SEED and all(len(own) == 1 for own in values.values()):
        return False
    return len(set.union(*values.values())) > 1
