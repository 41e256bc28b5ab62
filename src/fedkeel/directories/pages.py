"""The pages of what lies on disk: runs, comparisons, sweeps, and all of them together."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.errors import StorageError
from fedkeel.experiments import COMPARISON_FILE, OUTCOME_FILE, STUDY_FILE
from fedkeel.experiments.kept_runs import reported_run, told_apart
from fedkeel.report import FINAL, find_verdict, parse_measure, reachable_target
from fedkeel.report.page.comparison import runs_document
from fedkeel.report.page.document import Document, Section
from fedkeel.report.page.runs import ReportedRun
from fedkeel.report.page.sweep import sweep_section
from fedkeel.report.table_columns import COLUMNS
from fedkeel.report.tables import Trial
from fedkeel.running.run_directory import read_experiment
from fedkeel.studies.comparison import Comparison, kept_trials
from fedkeel.studies.study_pages import study_document, study_sections
from fedkeel.studies.sweep_report import SWEEP_FILE, read_sweep, sweep_trials

_MOST_NAMED = 5  # methods of a title


class PageParts(NamedTuple):
    """What a directory gives to a page: runs, sections of its own, and how its runs are compared."""

    title: str
    runs: tuple[ReportedRun, ...] = ()
    sections: tuple[Section, ...] = ()
    commands: tuple[str, ...] = ()
    settings: str = ""
    measure: str = str(FINAL)
    target: float | None = None
    columns: tuple[str, ...] = COLUMNS
    subject: str = "method"
    whole: Document | None = None  # the page that is kept already


def comparison_document(comparison: Comparison, trials: Sequence[Trial], out: Path) -> Document:
    """Return the page of a comparison whose runs are below a directory."""
    return _document(_comparison_parts(comparison, trials, out))


def sweep_document(out: Path) -> Document:
    """Return the page of a sweep that is written below a directory."""
    return _document(_sweep_parts(out))


def document_of(directories: Sequence[Path]) -> Document:
    """Return the page of directories: runs, comparisons, sweeps, studies, recipes, or what has runs below."""
    parts = [parts_of(directory) for directory in directories]
    if len(parts) == 1:
        return _document(parts[0])
    runs = told_apart([run for part in parts for run in _by_method(part)])
    named = [part for part in parts if part.runs]
    shared = {(part.measure, part.target) for part in named}
    measure, target = shared.pop() if len(shared) == 1 else (str(FINAL), None)
    return _document(
        PageParts(
            " and ".join(part.title for part in parts) if len(parts) < 4 else f"{len(parts)} directories",
            tuple(runs),
            tuple(_numbered([section for part in parts for section in _named_sections(part)])),
            tuple(dict.fromkeys(command for part in parts for command in part.commands)),
            measure=measure,
            target=target,
        )
    )


def runs_of(directories: Sequence[Path]) -> list[ReportedRun]:
    """Return all runs of directories, each with a name and seed of its own."""
    parts = [parts_of(directory) for directory in directories]
    if len(parts) == 1:
        return list(parts[0].runs)
    return told_apart([run for part in parts for run in _by_method(part)])


def parts_of(directory: Path) -> PageParts:
    """Return what a directory gives to a page."""
    if (directory / COMPARISON_FILE).exists():
        comparison = Comparison.load(directory)
        return _comparison_parts(comparison, kept_trials(comparison, directory), directory)
    if (directory / SWEEP_FILE).exists():
        return _sweep_parts(directory)
    if (directory / OUTCOME_FILE).exists():
        from fedkeel.papers.reproduce.page import kept_document  # noqa: PLC0415  heavy

        kept = kept_document(directory)
        return PageParts(kept.title, sections=kept.sections, whole=kept)
    if (directory / STUDY_FILE).exists() and (sections := study_sections(directory)):
        title = f"Study in {directory.name}"
        return PageParts(title, sections=sections, whole=study_document(directory, title))
    if (directory / "manifest.json").exists():
        run = reported_run(directory)
        command = f"fedkeel run {shlex.quote(str(directory / 'experiment.toml'))}"
        title = f"{run.trial.label} on {_data(run.manifest)}"
        return PageParts(title, (run,), commands=(command,), settings=read_experiment(directory))
    found = sorted(path.parent for path in directory.rglob("manifest.json")) if directory.is_dir() else []
    if not found:
        raise StorageError(
            f"{directory}: no run, comparison, sweep, study or recipe here; `fedkeel runs` lists runs"
        )
    warnings.warn(
        f"{directory}: there is no {COMPARISON_FILE}, {SWEEP_FILE} or {STUDY_FILE}: the {len(found)} runs "
        "below it are shown as they are",
        stacklevel=3,
    )
    return PageParts(
        f"Runs below {directory.name}", tuple(told_apart([reported_run(path) for path in found]))
    )


def _document(parts: PageParts) -> Document:
    if parts.whole is not None:
        return parts.whole
    if not parts.runs:
        return Document(title=parts.title, subtitle="; ".join(parts.commands), sections=parts.sections)
    trials, measure = [run.trial for run in parts.runs], parse_measure(parts.measure)
    return runs_document(
        parts.title,
        parts.runs,
        verdict=find_verdict(trials, measure),
        target=parts.target or reachable_target(trials, measure.metric),
        commands=parts.commands,
        settings=parts.settings,
        columns=parts.columns,
        subject=parts.subject,
        more=parts.sections,
    )


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


def _comparison_parts(comparison: Comparison, trials: Sequence[Trial], out: Path) -> PageParts:
    folders = {(job.method, job.seed): job.directory for job in comparison.jobs(out)}
    begun = [trial for trial in trials if (folders[trial.label, trial.seed] / "manifest.json").exists()]
    return PageParts(
        f"{_listed(comparison.methods)} on {comparison.base.data.name}",
        tuple(reported_run(folders[trial.label, trial.seed], trial) for trial in begun),
        commands=(comparison.command(), comparison.command_of_run(comparison.methods[-1], 0)),
        settings=comparison.base.to_toml(),
        measure=comparison.measure,
        target=comparison.base.target,
        columns=comparison.columns,
    )


def _sweep_parts(directory: Path) -> PageParts:
    found = read_sweep(directory)
    trials, measure = sweep_trials(directory, found), parse_measure(found.get("measure", str(FINAL)))
    best = f"Best: {found['best'] or 'none'} ({found['best_note']})."
    folders = [directory / one["directory"] for one in found["runs"]]
    return PageParts(
        f"{found['over']}: {', '.join(dict.fromkeys(trial.label for trial in trials))}",
        tuple(reported_run(folder, trial) for folder, trial in zip(folders, trials, strict=True)),
        (sweep_section(found["over"], trials, measure, best),),
        (found["command"],),
        found.get("settings", ""),
        str(measure),
        found["target"],
        tuple(found.get("columns", COLUMNS)),
        found["over"],
    )


def _data(manifest: Mapping[str, Any]) -> str:
    return str(manifest.get("data", {}).get("dataset", "own data"))


def _listed(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMED:
        return f"{len(names)} methods"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
