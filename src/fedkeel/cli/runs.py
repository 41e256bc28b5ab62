"""`fedkeel runs`: what is kept below a directory; a comparison, a sweep or a study is one entry.

Runs and comparisons are read without PyTorch; which runs some of the studies have is not known without it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.common import tomlfile
from fedkeel.common.errors import FedkeelError, StorageError
from fedkeel.common.progress import console, plain_table
from fedkeel.directories.kinds import KeptStudy, kept_study
from fedkeel.report.tables import curve
from fedkeel.running.run_directory import read_manifest, read_rows

_EXAMPLES = """[bold]Examples[/]

fedkeel runs

fedkeel runs --all

fedkeel runs /data/experiments --json"""
_HEADINGS = ("run", "method", "data", "seed", "rounds", "accuracy", "state")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES)(runs)


def runs(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look.")] = paths.ROOT,
    unfold: Annotated[
        bool, typer.Option("--all", help="List every run of comparisons, sweeps and studies.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """List the runs below a directory: how far they are and how well they do.

    A comparison, a sweep or a study is one entry: its best accuracy is a mean over seeds.
    """
    found = [run_line(path) for path in paths.run_directories(directory)]
    if not unfold:
        found = _with_studies(found, directory)
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    elif not found:
        console().print(f"no runs below {directory}; start one with: fedkeel run", markup=False)
    else:
        console().print(plain_table(_HEADINGS, [_cells(line) for line in found]))


def _with_studies(lines: list[dict[str, Any]], root: Path) -> list[dict[str, Any]]:
    """Return a line for each study below a root in place of those of its runs; all by their directories."""
    found, left = [], {Path(line["directory"]): line for line in lines}
    for directory in paths.studies_below(root):
        try:
            kept = kept_study(directory)
            if kept is None:
                continue
            own = {path: line for path, line in left.items() if path.is_relative_to(directory)}
            found.append(_study_line(kept, own))
        except FedkeelError as problem:
            found.append({"directory": str(directory), "kind": "study", "state": f"unreadable: {problem}"})
        else:
            left = {path: line for path, line in left.items() if path not in own}
    return sorted([*found, *left.values()], key=lambda line: Path(line["directory"]))


def _study_line(kept: KeptStudy, lines: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    """Return what the list says of a study, whose runs below its directory have these lines."""
    study = None if kept.plan is None else kept.study(checked=False)
    runs = {} if study is None else {run.directory: run for run in study.runs(kept.directory)}
    readable = [line for line in lines.values() if "method" in line]
    found = {
        "directory": str(kept.directory),
        "kind": kept.kind,
        "methods": list(dict.fromkeys(line["name"] for line in readable)),
        "data": next((line["data"] for line in readable), None),
        "seeds": sorted({line["seed"] for line in readable}),
        "rounds_planned": max((line["rounds_planned"] for line in readable), default=None),
        "best": _best(kept.directory, runs, lines),
        "state": _old_state(kept, lines),
        "runs": list(lines.values()),
    }
    if study is None:
        return found
    asked = study.experiment
    if study.has_experiment and hasattr(study, "methods"):
        found["methods"] = list(study.methods)
    if study.has_experiment and not readable:  # its runs keep no rows: what is known is in its plan
        found["methods"] = found["methods"] or [asked.method]
        found |= {"data": asked.data.name, "seeds": list(study.all_seeds)}
        found["rounds_planned"] = None if "rounds" in study.without else asked.rounds
    if all(hasattr(run, "finished") for run in runs.values()):
        done = sum(_is_done(run, lines) for run in runs.values())
    else:  # the trials of a search: how they ended is written when all have
        done = 0 if study.read(kept.directory) is None else len(runs)
    found["state"] = _counted(done, len(runs))
    return found


def _old_state(kept: KeptStudy, lines: Mapping[Path, Mapping[str, Any]]) -> str:
    """Return how far a study of version 0.1 is, as far as its files tell."""
    if kept.kind == "recipe" or (kept.directory / f"{kept.kind.removesuffix(' study')}.json").exists():
        return "finished"
    return _counted(sum(map(_is_finished, lines.values())), len(lines)) if lines else "of version 0.1"


def _best(
    directory: Path, runs: Mapping[Path, Any], lines: Mapping[Path, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return which of a study's methods, values or combinations does best, by the mean over its runs."""
    scores: dict[str, list[float]] = {}
    for path, line in lines.items():
        if line.get("accuracy") is not None:
            run = runs.get(path) or runs.get(path.parent)  # the run of a study may keep another in it
            label = getattr(run, "label", path.relative_to(directory).parts[0])
            scores.setdefault(label, []).append(line["accuracy"])
    if not scores:
        return None
    name = max(scores, key=lambda label: statistics.fmean(scores[label]))
    return {"name": name, "accuracy": statistics.fmean(scores[name])}


def _counted(done: int, runs: int) -> str:
    return f"{done} of {runs} run{'s' * (runs != 1)} finished"


def _is_done(run: Any, lines: Mapping[Path, dict[str, Any]]) -> bool:
    """Tell whether a run of a study is finished; one without a line keeps no rows, or lies elsewhere."""
    line = lines.get(run.directory)
    return run.finished() is not None if line is None else _is_finished(line)


def _is_finished(line: Mapping[str, Any]) -> bool:
    return str(line["state"]).startswith(("finished", "stopped early"))


def run_line(path: Path) -> dict[str, Any]:
    """Return what the list says of a run; a run that cannot be read is listed too."""
    try:
        return described(path, read_manifest(path), read_rows(path))
    except StorageError as problem:
        return {"directory": str(path), "kind": "run", "state": f"unreadable: {problem}"}


def described(path: Path, manifest: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the list says of a run with this manifest and these rows."""
    points = curve(rows)
    return {
        "directory": str(path),
        "kind": "run",
        "name": _name(path, manifest),
        "method": manifest["identity"]["method"],
        "data": manifest["data"].get("dataset"),
        "seed": manifest["identity"]["seed"],
        "rounds": len(rows),
        "rounds_planned": max(manifest["rounds"], len(rows)),
        "accuracy": points[-1][1] if points else None,
        "state": _state(path, manifest, len(rows)),
    }


def _state(path: Path, manifest: Mapping[str, Any], rounds: int) -> str:
    """Return how far a run is; one that a callback has ended is finished too."""
    end = manifest.get("end") or {}
    if end.get("stopped_by") and end["rounds"] == rounds:
        return f"stopped early by {end['stopped_by']}"
    if (path / "model.safetensors").exists():
        return "finished" if rounds >= manifest["rounds"] else "unfinished"
    return "model.safetensors is missing" if end.get("rounds") == rounds else "unfinished"


def _name(path: Path, manifest: Mapping[str, Any]) -> str:
    """Return the method as it was written, short; a run made from Python has its full expression."""
    told = manifest.get("experiment")
    try:
        written = (tomlfile.read(path / "experiment.toml") if told is None else tomlfile.parse(told))[
            "method"
        ]
    except (OSError, ValueError, KeyError):
        written = manifest["identity"]["method"]
    return str(written)


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    if "runs" in line:
        return _group_cells(line)
    if "method" not in line:
        return (line["directory"], "", "", "", "", "", "unreadable: `fedkeel show` says why")
    accuracy = line["accuracy"]
    return (
        line["directory"],
        _shortened(line["name"]),
        line["data"] or "—",
        str(line["seed"]),
        f"{line['rounds']}/{line['rounds_planned']}",
        "—" if accuracy is None else f"{100 * accuracy:.1f} %",
        line["state"],
    )


def _group_cells(line: dict[str, Any]) -> tuple[str, ...]:
    best, seeds = line["best"], line["seeds"]
    return (
        line["directory"],
        _shortened(": ".join(filter(None, (line["kind"], ", ".join(line["methods"]))))),
        line["data"] or "—",
        "—" if not seeds else str(seeds[0]) if len(seeds) == 1 else f"{len(seeds)} seeds",
        str(line["rounds_planned"] or "—"),
        "—" if best is None else f"{_shortened(best['name'], 24)} {100 * best['accuracy']:.1f} %",
        line["state"],
    )


def _shortened(text: str, width: int = 40) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
