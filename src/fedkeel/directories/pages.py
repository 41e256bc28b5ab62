"""The pages of what lies on disk: runs, comparisons, sweeps, and all of them together."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkeel.common.errors import StorageError
from fedkeel.directories.kinds import KeptStudy, kept_study
from fedkeel.directories.old import old_document, old_parts
from fedkeel.experiments import STUDY_FILE
from fedkeel.experiments.kept_runs import reported_run, with_unique_names
from fedkeel.report import FINAL
from fedkeel.report.page.document import Document, Section
from fedkeel.report.page.parts import PageParts
from fedkeel.report.page.runs import ReportedRun
from fedkeel.report.tables import UNFINISHED
from fedkeel.report.verdict import no_verdict
from fedkeel.running.run_directory import read_experiment
from fedkeel.studies.base import Study


def document_of(directories: Sequence[Path]) -> Document:
    """Return the page of directories: runs, comparisons, sweeps, studies, recipes, or what has runs below."""
    parts = [parts_of(directory) for directory in directories]
    if len(parts) == 1:
        return parts[0].document()
    runs, unclear = with_unique_names([run for part in parts for run in _by_method(part)])
    named = [part for part in parts if part.runs]
    shared = {(part.measure, part.target) for part in named}
    measure, target = shared.pop() if len(shared) == 1 else (str(FINAL), None)
    return PageParts(
        " and ".join(part.title for part in parts) if len(parts) < 4 else f"{len(parts)} directories",
        runs,
        tuple(_numbered([section for part in parts for section in _named_sections(part)])),
        tuple(dict.fromkeys(command for part in parts for command in part.commands)),
        measure=measure,
        target=target,
        verdict=None if unclear is None else no_verdict(unclear, measure),
    ).document()


def runs_of(directories: Sequence[Path]) -> list[ReportedRun]:
    """Return all runs of directories, each with a name and seed of its own."""
    parts = [parts_of(directory) for directory in directories]
    if len(parts) == 1:
        return list(parts[0].runs)
    return list(with_unique_names([run for part in parts for run in _by_method(part)]).runs)


def parts_of(directory: Path) -> PageParts:
    """Return what a directory gives to a page."""
    study = kept_study(directory)
    parts = None if study is None else study_parts_of(study)
    if parts is not None:
        return parts
    if (directory / "manifest.json").exists():
        run = reported_run(directory)
        command = f"fedkeel run {shlex.quote(str(directory / 'experiment.toml'))}"
        title = f"{run.trial.label} on {_data(run.manifest)}"
        return PageParts(title, (run,), commands=(command,), settings=read_experiment(directory))
    found = sorted(path.parent for path in directory.rglob("manifest.json")) if directory.is_dir() else []
    if not found:
        nothing = "no run, comparison, sweep, study or recipe here; `fedkeel runs` lists runs"
        raise StorageError(f"{directory}: {nothing if study is None else study.way_on()}")
    warnings.warn(
        f"{directory}: there is no {STUDY_FILE}: the {len(found)} runs below it are shown as they are",
        stacklevel=3,
    )
    runs, unclear = with_unique_names([reported_run(path) for path in found])
    verdict = None if unclear is None else no_verdict(unclear)
    return PageParts(f"Runs below {directory.name}", runs, verdict=verdict)


def study_parts_of(kept: KeptStudy) -> PageParts | None:
    """Return the page of a study; None where it has nothing to show yet."""
    if kept.kind == "recipe":
        from fedkeel.papers.reproduce.page import kept_document  # noqa: PLC0415  heavy

        page = kept_document(kept.directory)
        return PageParts(page.title, sections=page.sections, whole=page)
    if kept.plan is None:
        return old_parts(kept.directory, kept.kind)
    study = kept.study(checked=False)
    numbers = numbers_so_far(study, kept.directory)
    return None if numbers is None else study.parts(numbers, kept.directory)


def study_document(kept: KeptStudy, columns: str | None = None) -> Document | None:
    """Return all that is told of a study, as far as it is; None where it has nothing to show yet."""
    if kept.kind == "recipe" and columns is None:
        from fedkeel.papers.reproduce.page import kept_document  # noqa: PLC0415  heavy
        from fedkeel.papers.reproduce.study import read_outcome_file, recipe_told  # noqa: PLC0415

        page = kept_document(kept.directory)
        return recipe_told(read_outcome_file(kept.directory), kept.directory, page)
    if kept.plan is None:
        return old_document(kept.directory, kept.kind, columns)
    study = kept.study(checked=False)
    if columns is not None:
        study = study.with_columns(columns)
    numbers = numbers_so_far(study, kept.directory, anew=columns is not None)
    return None if numbers is None else study.document(numbers, kept.directory)


def numbers_so_far(study: Study, directory: Path, *, anew: bool = False) -> dict[str, Any] | None:
    """Return what a study came to, or what its runs say so far; None where they say nothing yet."""
    kept = study.read(directory)
    results = study.so_far(directory)
    changed = results is not None and any(one.problem == UNFINISHED for one in results.values())
    if results is not None and (kept is None or changed or anew):
        if anew:
            study.check_columns(results)
        return study.conclude(results, directory)
    return kept


def _by_method(part: PageParts) -> list[ReportedRun]:
    """Return runs by what they train: among others, a sweep's value says too little."""
    if part.subject == "method":
        return list(part.runs)
    pattern = part.subject if "{}" in part.subject else f"{part.subject}={{}}"
    pattern = pattern.removeprefix("method=")
    return [
        run._replace(trial=run.trial._replace(label=pattern.replace("{}", run.trial.label)))
        for run in part.runs
    ]


def _named_sections(part: PageParts) -> list[Section]:
    """Return sections that say what they are of where they stand among others."""
    if part.whole is None:
        return list(part.sections)
    name = part.title.partition(":")[0]
    return [section.model_copy(update={"title": f"{name}: {section.title}"}) for section in part.sections]


def _numbered(sections: Sequence[Section]) -> list[Section]:
    """Return sections with names of their own: two studies of one kind have the same."""
    return [
        section.model_copy(update={"id": f"{section.id}-{number}"})
        for number, section in enumerate(sections, start=1)
    ]


def _data(manifest: Mapping[str, Any]) -> str:
    return str(manifest.get("data", {}).get("dataset", "own data"))
