"""Studies as sections of a page, from the numbers that they leave in their directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkeel.common.errors import StorageError
from fedkeel.common.files import read_whole, storage_errors, write_durably
from fedkeel.common.jsonfiles import json_text, parse_object, sealed, unsealed
from fedkeel.common.tomlfile import flat
from fedkeel.report.page.document import (
    Axis,
    Chart,
    Code,
    Document,
    FactList,
    Section,
    Series,
    Table,
    Text,
    Verdict,
)
from fedkeel.report.page.rendering import write_page
from fedkeel.report.page.runs import short
from fedkeel.studies.constants_page import constants_section
from fedkeel.studies.description import read_description
from fedkeel.studies.robustness_page import robustness_section
from fedkeel.studies.study_verdicts import VERDICTS

StudyTable = tuple[tuple[str, ...], list[tuple[str, ...]]]


def study_document(directory: Path, title: str) -> Document:
    """Return the page of a study."""
    return Document(
        title=title,
        kind="study",
        verdict=_verdict(directory),
        sections=(*study_sections(directory), _provenance(directory)),
    )


def write_study(directory: Path, name: str, found: Mapping[str, Any], title: str, command: str) -> Path:
    """Write what a study found: as numbers, and as a page, whose path is returned."""
    with storage_errors(directory):
        kept = sealed({"methods": found, "command": command})
        write_durably(directory / f"{name}.json", json_text(kept, indent=2).encode())
    return write_page(study_document(directory, title), directory / "page.html")


def study_sections(directory: Path) -> tuple[Section, ...]:
    """Return what a study found; nothing where it is of another kind or not finished."""
    made = []
    kinds: dict[str, Callable[[Any], Section]] = {
        "stability": stability_section,
        "interaction": interaction_section,
        "robustness": robustness_section,
        "constants": constants_section,
    }
    for name, section in kinds.items():
        file = directory / f"{name}.json"
        if not file.exists():
            continue
        try:
            made.append(section(_found(file)))
        except (OSError, ValueError, KeyError, TypeError, IndexError) as problem:
            raise StorageError(
                f"{file}: cannot be read ({problem}): run the same `fedkeel study {name}` line again"
            ) from None
    return tuple(made)


def _verdict(directory: Path) -> Verdict | None:
    """Say in a sentence what came out."""
    there = (name for name in VERDICTS if (directory / f"{name}.json").exists())
    name = next(there, None)
    return None if name is None else VERDICTS[name](_found(directory / f"{name}.json"))


def _provenance(directory: Path) -> Section:
    """Return the command line of a study, and what decides its numbers."""
    settings = flat(read_description(directory)["settings"])
    rows = tuple((name, _text(value)) for name, value in settings.items() if value is not None)
    command = next(filter(None, (_command(directory / f"{name}.json") for name in VERDICTS)), None)
    again = () if command is None else (Code(id="command", title="Run it again", text=command),)
    blocks = (*again, FactList(id="settings", rows=rows))
    return Section(id="provenance", title="Provenance", blocks=blocks)


def _command(file: Path) -> str | None:
    """Return the command line that a study was made with; those made before it was kept have none."""
    if not file.exists():
        return None
    kept = parse_object(read_whole(file)).get("command")
    return kept if isinstance(kept, str) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _found(file: Path) -> Any:
    """Return what a study wrote, its seal checked; before there were seals it was not below `methods`."""
    table = unsealed(parse_object(read_whole(file)))
    return table.get("methods", table)


def stability_section(found: Mapping[str, Mapping[str, Any]]) -> Section:
    """Return how far coupled runs part: over the rounds, within a round, and after the last one."""
    headings, rows = stability_table(found)
    first = next(iter(found.values()))
    parting = _lines({name: one["mean"] for name, one in found.items()})
    largest = _lines({name: one["largest"] for name, one in found.items()})
    local = tuple(
        line.model_copy(update={"colour": colour, "dash": dash})
        for colour, (name, each) in enumerate(found.items())
        for dash, one in enumerate(each["local"])
        for line in _lines({f"{name}, round {one['round']}": one["distances"]})
    )
    return Section(
        id="stability",
        title="Stability",
        about="How far two runs part that differ in one client or one sample.",
        blocks=(
            Chart(
                id="parting",
                title="‖x − x'‖, mean over pairs",
                x=Axis(label="round"),
                y=Axis(label="distance"),
                series=parting,
                wide=True,
            ),
            Table(id="stability-table", title="After the last round", headings=headings, rows=tuple(rows)),
            Text(id="stability-text", paragraphs=tuple(stability_text(first).split("\n"))),
            Chart(
                id="largest",
                title="‖x − x'‖, largest pair",
                x=Axis(label="round"),
                y=Axis(label="distance"),
                series=largest,
            ),
            Chart(
                id="local",
                title="Largest distance between two walks, by step",
                x=Axis(label="local step"),
                y=Axis(label="distance"),
                series=local,
            ),
        ),
    )


def stability_table(found: Mapping[str, Mapping[str, Any]]) -> StudyTable:
    """Return headings and a line per method: distances, losses and the gap after the last round."""
    measured = [one["round"] for one in next(iter(found.values()))["local"]]
    rows = [
        (
            name,
            f"{one['mean'][-1]:.4f}",
            f"{one['largest'][-1]:.4f}",
            f"{one['losses'][-1]['absolute']:.4f}",
            f"{one['losses'][-1]['signed']:.4f}",
            *(f"{local['distances'][-1]:.4f}" for local in one["local"]),
            f"{one['gap']:+.4f}",
        )
        for name, one in found.items()
    ]
    local = (f"local, round {round}" for round in measured)
    return ("method", "‖x − x'‖ mean", "largest", "max |f − f'|", "max f − f'", *local, "R_u − R_e"), rows


def stability_text(found: Mapping[str, Any]) -> str:
    """Say what was replaced and what the columns are."""
    replaced = ", ".join(
        f"{one['client']} (first in round {one['first_round']}, {one['participations']} times)"
        for one in found["clients"]
    )
    what = "Replaced clients" if found["replaced"] == "client" else "Clients with one sample replaced"
    chosen = (
        f"chosen among {found['eligible']} that are drawn within the first {found['drawn_by']} rounds and at "
        f"least {found['drawn_at_least']} times"
    )
    return (
        f"After {len(found['mean']) - 1} rounds. {what}: {replaced}; {chosen}.\n"
        "f − f': losses of the two models on a sample, mean over pairs, largest over samples (FedSAGD's "
        "Definition 3.4, and without the absolute value FedInit's Definition 11).\n"
        "local: the largest distance between two clients' models at the end of their walks in that round."
    )


def interaction_section(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Section:
    """Return which features models share, snapshot by snapshot."""
    headings, rows = interaction_table(found)
    series = tuple(
        Series(name=name, x=tuple(m["round"] for m in seen), y=tuple(m["features"] for m in seen))
        for name, seen in found.items()
    )
    return Section(
        id="interaction",
        title="Interaction",
        about="Which features local and global models share.",
        blocks=(
            Chart(
                id="features",
                title="Features, all models together",
                x=Axis(label="round"),
                y=Axis(label="features"),
                series=series,
                wide=True,
            ),
            Table(id="interaction-table", title="Snapshots", headings=headings, rows=tuple(rows)),
        ),
    )


def interaction_table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> StudyTable:
    """Return headings and a line per method and snapshot."""
    rows: list[tuple[str, ...]] = [
        (
            name,
            f"{m['round']}",
            f"{m['features']}",
            f"{m['local_current']:.1f}",
            f"{m['current_mean']}",
            f"{m['current_next']}",
            ", ".join(f"{gamma:g}: {count}" for gamma, count in m["sweep"]),
        )
        for name, seen in found.items()
        for m in seen
    ]
    shared = ("local ∩ global", "global ∩ mean", "global ∩ next")
    return ("method", "round", "features", *shared, "features by γ_corr"), rows


def _lines(curves: Mapping[str, Sequence[float]]) -> tuple[Series, ...]:
    return tuple(
        Series(name=name, x=tuple(range(len(values))), y=tuple(map(short, values)))
        for name, values in curves.items()
    )
