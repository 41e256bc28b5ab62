"""Studies of version 0.1, whose directories have no plan: their numbers are read, and shown as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.errors import StorageError
from fedkeel.common.files import read_whole
from fedkeel.common.jsonfiles import parse_object, unsealed
from fedkeel.experiments import PAGE_FILE
from fedkeel.report.page.document import Document, Section, Verdict
from fedkeel.report.page.parts import PageParts
from fedkeel.report.table_columns import parse_columns
from fedkeel.studies.comparison import check_columns
from fedkeel.studies.constants_page import constants_section, constants_verdict
from fedkeel.studies.description import read_description
from fedkeel.studies.interaction_page import interaction_section, interaction_verdict
from fedkeel.studies.measured import grouped, provenance
from fedkeel.studies.robustness_page import robustness_section, robustness_verdict
from fedkeel.studies.stability_page import stability_section, stability_verdict
from fedkeel.studies.sweep import (
    read_old_sweep,
    sweep_parts,
    sweep_summary,
    sweep_trials,
    with_other_columns,
)
from fedkeel.studies.sweep_report import SWEEP_FILE


class _Shown(NamedTuple):
    section: Callable[[Any], Section]
    verdict: Callable[[Any], Verdict | None]
    by_method: bool = False


_KINDS = {
    "stability": _Shown(stability_section, stability_verdict, by_method=True),
    "interaction": _Shown(interaction_section, interaction_verdict, by_method=True),
    "robustness": _Shown(robustness_section, robustness_verdict),
    "constants": _Shown(constants_section, constants_verdict),
}


def old_parts(directory: Path, kind: str) -> PageParts | None:
    """Return the page of an old study; None where it was not finished, or shows nothing."""
    name = kind.removesuffix(" study")
    if kind == "sweep" and (directory / SWEEP_FILE).exists():
        return sweep_parts(read_old_sweep(directory), directory)
    file = directory / f"{name}.json"
    if name not in _KINDS or not file.exists():
        return None
    shown = _KINDS[name]
    try:
        table = unsealed(parse_object(read_whole(file)))
        found = table.get("methods", table)  # before there were seals it was not below `methods`
        section = shown.section(found)
        verdict = shown.verdict(grouped({"methods": found}) if shown.by_method else found)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise StorageError(
            f"{file}: cannot be read ({problem}): run the same `fedkeel study {name}` line again"
        ) from None
    title = f"Study in {directory.name}"
    described = {**read_description(directory), "command": table.get("command")}
    whole = Document(title=title, kind="study", verdict=verdict, sections=(section, provenance(described)))
    return PageParts(title, sections=(section,), whole=whole)


def old_document(directory: Path, kind: str, columns: str | None = None) -> Document | None:
    """Return what is told of an old sweep; None of the others, which are shown by their pages."""
    if kind != "sweep" or not (directory / SWEEP_FILE).exists():
        return None
    numbers = read_old_sweep(directory)
    if columns is not None:
        trials, asked = sweep_trials(directory, numbers), parse_columns(columns)
        check_columns(asked, trials, min(len(trial.rows) for trial in trials))
        numbers = with_other_columns(numbers, trials, asked)
    whole = {**numbers, "directory": str(directory), "page": str(directory / PAGE_FILE)}
    page = sweep_parts(numbers, directory).document()
    return page.model_copy(update={"summary": sweep_summary(numbers), "numbers": whole})
