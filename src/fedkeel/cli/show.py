"""`fedkeel show`: what is kept of a run, a comparison or a sweep, read without PyTorch."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.clients import show_clients
from fedkeel.cli.runs import described
from fedkeel.cli.studies import option_of
from fedkeel.common.columns import shown_events
from fedkeel.common.errors import StorageError
from fedkeel.common.progress import console, shown_time
from fedkeel.directories.kinds import KeptStudy, kept_study
from fedkeel.experiments import PAGE_FILE
from fedkeel.report.tables import UNFINISHED, best_round, curve, shown_best
from fedkeel.report.target_costs import shown_bytes
from fedkeel.report.terminal import print_document
from fedkeel.running.run_directory import check_end, read_manifest, read_rows, read_timings
from fedkeel.studies.comparison import Comparison

_EXAMPLES = "[bold]Examples[/]\n\n"
_SHOW = (
    _EXAMPLES + "fedkeel show runs/20260101-120000-scaffold\n\nfedkeel show runs/mine --json | jq .rows[-1]"
    "\n\nfedkeel show runs/mine --per-client\n\nfedkeel show runs/compare --columns top,gradients_to_target"
)
_BARS = "▁▂▃▄▅▆▇█"
_WIDE = 60


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_SHOW)(show)


def show(
    directory: opt.Directory,
    per_client: Annotated[
        bool, typer.Option("--per-client", help="How its model does client by client.")
    ] = False,
    columns: Annotated[str | None, option_of(Comparison, "columns")] = None,
    as_json: opt.Json = False,
) -> None:
    """Show a run: its settings, its curve, what it cost; of a comparison or sweep its table and verdict."""
    kept = None if per_client else kept_study(directory)
    if kept is not None:
        _show_study(kept, columns, as_json=as_json)
        return
    paths.refuse_columns(directory, columns)
    if per_client:
        show_clients(directory, as_json=as_json)
        return
    found = _whole(directory)
    _print_json(found) if as_json else _show_run(directory, found)
    if (found["manifest"].get("end") or {}).get("rounds") == len(found["rows"]):
        check_end(directory)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def _whole(directory: Path) -> dict[str, Any]:
    manifest, rows = read_manifest(directory), read_rows(directory)
    return {**described(directory, manifest, rows), "manifest": manifest, "rows": rows}


def _show_run(directory: Path, found: Mapping[str, Any]) -> None:
    rows, manifest = found["rows"], found["manifest"]
    facts = [
        ("method", found["method"]),
        ("data", ", ".join(f"{key} {_shown(value)}" for key, value in manifest["data"].items())),
        *([("begins", _shown_start(manifest["initial_weights"]))] if "initial_weights" in manifest else []),
        ("work", manifest["identity"]["work"]),
        (
            "cohort",
            f"{_cohort(manifest['identity']['cohort'])} per round, {manifest['identity']['sampling']}",
        ),
        ("engine", f"{manifest['engine']}, {manifest['threads']} threads"),
        ("versions", ", ".join(f"{key} {value}" for key, value in manifest["versions"].items())),
        ("rounds", f"{found['rounds']} of {found['rounds_planned']}, {found['state']}"),
    ]
    points = curve(rows)
    if points:
        best = best_round(rows, (manifest.get("end") or {}).get("best"))
        sent = sum(row["bytes_down"] + row["bytes_up"] for row in rows)
        facts += [
            ("accuracy", f"{100 * points[-1][1]:.1f} %{'' if best is None else ', ' + shown_best(best)}"),
            ("curve", _spark([value for _, value in points])),
            ("cost", f"{shown_bytes(sent)} sent, {_shown_seconds(directory)}"),
        ]
    facts += [(f"{name} " if len(name) > 9 else name, told) for name, told in shown_events(rows).items()]
    if found["state"] == "unfinished":
        facts.append(("go on", f"fedkeel resume {shlex.quote(str(directory))}"))
    console().print("\n".join(f"{name:<10}{text}" for name, text in facts), markup=False, soft_wrap=True)


def _cohort(asked: float) -> str:
    return f"{asked} clients" if isinstance(asked, int) else f"{100 * asked:g} % of the clients"


def _shown(value: Any) -> str:
    """Return a fact about the data; several noises are applied one after the other."""
    return " + ".join(map(str, value)) if isinstance(value, list) else str(value)


def _shown_start(weights: Mapping[str, Any]) -> str:
    """Return where a run's initial weights are from, and which of them it drew itself."""
    kept = weights["kept_by_model"]
    return f"with weights from {weights['from']}{', but for ' + ' and '.join(kept) if kept else ''}"


def _shown_seconds(directory: Path) -> str:
    """Return what a run took, and how much of it went into evaluation and probes."""
    timings = read_timings(directory)
    total, *parts = (
        sum(row.get(name, 0.0) for row in timings) for name in ("seconds", "evaluation", "probes")
    )
    evaluation, probes = (f"{part / total:.1%}" if total else "0 %" for part in parts)
    return f"{shown_time(total)}, of which {evaluation} evaluation and {probes} probes"


def _spark(values: list[float]) -> str:
    """Return a curve as a line of bars, from its lowest to its highest value."""
    if len(values) > _WIDE:
        values = [values[i * (len(values) - 1) // (_WIDE - 1)] for i in range(_WIDE)]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    bars = "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in values)
    return f"{100 * low:.0f} % {bars} {100 * high:.0f} %"


def _show_study(kept: KeptStudy, columns: str | None, *, as_json: bool) -> None:
    """Print what a study came to, or what its runs say so far."""
    from fedkeel.directories.pages import study_document  # noqa: PLC0415  pydantic takes its time

    document = study_document(kept, columns)
    quoted = shlex.quote(str(kept.directory))
    if document is None:
        raise StorageError(f"{kept.directory}: {kept.way_on()}")
    if as_json:
        _print_json(document.numbers)
        return
    page = kept.directory / PAGE_FILE
    print_document(document, page if page.exists() else None)
    if any(run.get("problem") == UNFINISHED for run in document.numbers.get("runs", ())):
        console().print(f"Go on: fedkeel resume {quoted}", markup=False)
