"""`fedkeel runs`: what is kept below a directory, read without PyTorch; a comparison is one entry."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.common import tomlfile
from fedkeel.common.errors import StorageError
from fedkeel.common.progress import console, plain_table
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

    The runs of a comparison, a sweep or a study are one entry: its best accuracy is a mean over seeds.
    """
    found = [_entry(group, list(members)) for group, members in _grouped(directory, unfold=unfold)]
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    elif not found:
        console().print(f"no runs below {directory}; start one with: fedkeel run", markup=False)
    else:
        console().print(plain_table(_HEADINGS, [_cells(line) for line in found]))


def _grouped(root: Path, *, unfold: bool) -> Any:
    """Return the runs below a root, each by itself or together with all others of its group."""

    def group(path: Path) -> Path:
        return path if unfold else paths.group_of(path, root) or path

    return groupby(sorted(paths.run_directories(root), key=lambda path: (group(path), path)), key=group)


def _entry(group: Path, members: list[Path]) -> dict[str, Any]:
    """Return what the list says of a run or of a group of runs."""
    if members == [group]:
        return run_line(group)
    lines = [run_line(path) for path in members]
    readable = [line for line in lines if "method" in line]
    kind = paths.kind_of_group(group)
    scores: dict[str, list[float]] = {}
    for path, line in zip(members, lines, strict=True):
        if line.get("accuracy") is not None:
            part = path.relative_to(group).parts[0]
            scores.setdefault(line["name"] if kind == "comparison" else part, []).append(line["accuracy"])
    best = max(scores, key=lambda name: statistics.fmean(scores[name]), default=None)
    finished = sum(line["state"].startswith(("finished", "stopped early")) for line in lines)
    return {
        "directory": str(group),
        "kind": kind,
        "methods": list(dict.fromkeys(line["name"] for line in readable)),
        "data": next((line["data"] for line in readable), None),
        "seeds": sorted({line["seed"] for line in readable}),
        "rounds_planned": max((line["rounds_planned"] for line in readable), default=None),
        "best": None if best is None else {"name": best, "accuracy": statistics.fmean(scores[best])},
        "state": f"{finished} of {paths.planned_runs(group) or len(lines)} runs finished",
        "runs": lines,
    }


def run_line(path: Path) -> dict[str, Any]:
    """Return what the list says of a run; a run that cannot be read is listed too."""
    try:
        return described(path, read_manifest(path), read_rows(path))
    except StorageError as problem:
        return {"directory": str(path), "kind": "run", "state": f"unreadable: {problem}"}


def described(path: Path, manifest: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the list says of a run with this manifest and these rows."""
    from fedkeel.report.tables import curve  # noqa: PLC0415

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
        _shortened(f"{line['kind']}: {', '.join(line['methods'])}"),
        line["data"] or "—",
        f"{len(seeds)} seeds" if len(seeds) != 1 else str(seeds[0]),
        str(line["rounds_planned"] or "—"),
        "—" if best is None else f"{_shortened(best['name'], 24)} {100 * best['accuracy']:.1f} %",
        line["state"],
    )


def _shortened(text: str, width: int = 40) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
