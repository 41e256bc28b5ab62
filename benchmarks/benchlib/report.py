"""What was measured, as Markdown."""

from __future__ import annotations

from typing import Any

from benchlib.choices import MOST_RATIO, MOST_SECONDS
from benchlib.choices import table as choices_table
from benchlib.figures import BEST, METHODS, VERSUS, Figure, compare
from benchlib.stats import FEW, Ratio, median, ratio, verdict
from benchlib.versus import BARE, BARE_KEPT, ENGINES, SERIAL

_PEERS = ("pfl", "fedlab", "flwr")
_BUSY = 0.5  # load a core before the start from which the machine counts as busy


def markdown(results: dict[str, Any]) -> str:
    """Return the page."""
    parts = [_head(results), _versus(results), _engines(results), _methods(results)]
    parts += [_sweeps(results), _choices(results), _figures(results), _notes(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(results: dict[str, Any]) -> str:
    machine = results["runs"][-1]["machine"]
    versions = sorted(_versions(results).items())
    lines = [
        "# Benchmark",
        "",
        "Written by the commands below; do not edit. What it means: [performance.md](performance.md).",
        "",
        f"- {machine['processor']}, {machine['cores']} cores, {machine['system']}",
        f"- Python {machine['python']}, {', '.join(f'{name} {version}' for name, version in versions)}",
        *(_run(run) for run in results["runs"]),
    ]
    return "\n".join(lines)


def _run(run: dict[str, Any]) -> str:
    """Return what a run measured, when, and what else the machine did."""
    machine = run["machine"]
    before, after = (
        ", ".join(f"{value:g}" for value in load) for load in (machine["load"], run["load_after"])
    )
    busy = machine["load"][0] > _BUSY * machine["cores"]
    note = " **The machine was busy with other work**: intervals are wide." if busy else ""
    took = f"{run['minutes']:.0f} minutes, load average before {before}, after {after}"
    return f"- `{run['command']}`: {machine['date']}, {took}.{note}"


def _versions(results: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for result in results["versus"].values():
        for facts in result["facts"].values():
            found |= {
                key: value for key, value in facts.items() if key in ("torch", "fedkeel", "ray", *_PEERS)
            }
    return found


def _versus(results: dict[str, Any]) -> str:
    if not results["versus"]:
        return ""
    rows = [[f"{name}{_shape(r)}", *_row(r)] for name, r in results["versus"].items()]
    head = ["workload", "fedkeel's best", "s per round", BARE, *_PEERS]
    return (
        "## Against the bare loop and the peers\n\n"
        "Seconds per round of each, divided by fedkeel's at its best engine: above 1, fedkeel is faster. "
        "Median of n interleaved pairs and its 95 % bootstrap interval.\n\n" + _table(head, rows)
    )


def _shape(result: dict[str, Any]) -> str:
    w = result["workload"]
    return f" ({w['cohort']} of {w['clients']} × {w['samples']}, batch {w['batch']}, {w['epochs']} epochs)"


def _row(result: dict[str, Any]) -> list[str]:
    best = result["best"]
    cells = [best.removeprefix("fedkeel "), f"{median(result['pairs'][best]):.3g}"]
    for name in (BARE, *_PEERS):
        found = compare(result, name)
        cells.append(_cell(found, "not measured" if name not in result["failures"] else "does not run"))
    return cells


def _cell(found: Ratio | None, otherwise: str) -> str:
    return otherwise if found is None else found.text()


def _engines(results: dict[str, Any]) -> str:
    if not results["versus"]:
        return ""
    names = [f"fedkeel {engine}" for engine in ENGINES]
    rows = []
    for workload, result in results["versus"].items():
        facts = result["facts"].get(BARE, {})
        cells = [
            f"{median(result['screening'][name]):.3g}" if any(result["screening"].get(name, [])) else "—"
            for name in (BARE, *names)
        ]
        overheads = [compare(result, SERIAL, BARE), compare(result, SERIAL, BARE_KEPT)]
        how = f"{facts.get('threads')} threads, {facts.get('form')}"
        chose = result["facts"].get("fedkeel auto", {}).get("chose", "—").split(" (")[0]
        rows.append([workload, how, *cells, chose, *(_cell(found, "—") for found in overheads)])
    head = ["workload", "the bare loop's best", BARE, *ENGINES, "auto chose"]
    head += ["serial / bare loop", "serial / bare loop, heap kept"]
    return (
        "## Engines\n\nSeconds per round in the screening turns; the last columns at equal threads, in "
        "pairs. In the last the bare loop keeps freed memory too, as fedkeel does (see performance.md).\n\n"
        + _table(head, rows)
    )


def _methods(results: dict[str, Any]) -> str:
    measured = results.get("methods")
    if not measured:
        return ""
    columns = measured["columns"]
    base = columns["FedAvg"]
    rows = [[name, _cell(ratio(column, base), "—")] for name, column in columns.items() if name != "FedAvg"]
    few = "" if len(base) >= FEW else f" Only {len(base)} pairs: a few per cent are not resolved."
    return (
        f"## Methods against FedAvg on the CNN\n\nSerial on {measured['threads']} threads; clients a "
        f"round: {measured['workload']['cohort']}, so the server's work weighs more than in the workload. "
        f"FedAvg takes {median(base):.3g} s per round.{few}\n\n"
        + _table(["method", "seconds per round / FedAvg's"], rows)
    )


def _sweeps(results: dict[str, Any]) -> str:
    if not results.get("sweeps"):
        return ""
    rows = [
        [axis, value, f"{seconds * 1000:.3g}"]
        for axis, found in results["sweeps"].items()
        for value, seconds in found.items()
    ]
    return "## What a round costs\n\n" + _table(["against", "at", "milliseconds per round"], rows)


def _choices(results: dict[str, Any]) -> str:
    if not results.get("choices"):
        return ""
    told = (
        "Seconds of a run from the call of `train` to its end, choosing and compiling included, every run "
        "with an empty cache. A row's length is what serial takes; ≈ is extrapolated from the start and some "
        f"seconds of rounds. Auto may take {MOST_RATIO:g} times the best engine's seconds, "
        f"or {MOST_SECONDS:g} s more."
    )
    return f"## What auto chooses\n\n{told}\n\n{choices_table(results['choices'])}"


def _figures(results: dict[str, Any]) -> str:
    rows = []
    for figure in VERSUS:
        if figure.workload in results["versus"]:
            found = compare(results["versus"][figure.workload], figure.above, figure.below)
            rows.append(_with_verdict(figure, found))
    if results.get("methods"):
        columns = results["methods"]["columns"]
        rows += [_with_verdict(f, ratio(columns[f.above], columns["FedAvg"])) for f in METHODS]
    if not rows:
        return ""
    text = f"`{BEST}`: fedkeel at its best engine. A figure is reached where the whole interval reaches it."
    return f"## Figures to reach\n\n{text}\n\n" + _table(["figure", "measured", "verdict"], rows)


def _with_verdict(figure: Figure, found: Ratio | None) -> list[str]:
    said = verdict(found, figure.target, at_least=figure.at_least)
    return [figure.text, _cell(found, "—"), said]


def _notes(results: dict[str, Any]) -> str:
    return (
        "" if not results["notes"] else "## Notes\n\n" + "\n".join(f"- {note}" for note in results["notes"])
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
