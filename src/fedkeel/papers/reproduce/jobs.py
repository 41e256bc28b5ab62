"""One job of a recipe: trained or measured, resumed where it was begun, read where it is finished."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedkeel.common.errors import Diverged
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.planned_run import PlannedRun
from fedkeel.papers.recipes.studies import BoundedRun, CountedCosts, FeatureCounts, StabilityCurves
from fedkeel.papers.reproduce.plan import RecipeJob
from fedkeel.running.run_directory import count_rows, read_rows
from fedkeel.settings.options import SERIAL
from fedkeel.studies.artifacts import read_or_make, read_part

if TYPE_CHECKING:
    from fedkeel.settings.run_settings import RunSettings

FEATURES = "features"  # below a job's directory: a study of features, with its run
RESULT_FILE = "recipe.json"  # the rows of a study, or why a run diverged

JobRows = Sequence[Mapping[str, Any]]
RowCallback = Callable[[Any], None]


class JobResult(NamedTuple):
    """The rows of a job, and why it diverged, if it did."""

    rows: JobRows
    problem: str | None = None


def finished(job: RecipeJob) -> JobResult | None:
    """Return what is there of a job that is done; None where something is left to do."""
    found = read_part(_result_file(job))
    if found is not None:
        return JobResult(found["rows"] or read_rows(job.directory), found["problem"])
    if job.study is not None or not job.directory.exists():
        return None
    trial = _planned(job).finished()
    return None if trial is None else JobResult(trial.rows)


def carry_out(job: RecipeJob, on_row: RowCallback | None = None) -> JobResult:
    """Run a job, or go on with it; a run that diverges is a result too, and is not repeated."""
    before = finished(job)
    if before is not None:
        return before
    if job.study is None:
        trial = _planned(job).run(on_row)
        if trial.problem is not None:
            read_or_make(_result_file(job), lambda: {"rows": [], "problem": trial.problem})
        return JobResult(trial.rows, trial.problem)
    made = read_or_make(_result_file(job), lambda: _measured(job, on_row))
    return JobResult(made["rows"], made["problem"])


def rounds_done(job: RecipeJob) -> int:
    """Return how many rounds of a job are on disk, quickly: the lines of its metrics."""
    return count_rows(job.directory if job.study is None else job.directory / FEATURES / "run")


def _planned(job: RecipeJob) -> PlannedRun:
    return PlannedRun(job.key.row, Experiment.from_table(job.table), job.directory)


def _result_file(job: RecipeJob) -> Path:
    along = getattr(job.study, "along", None)
    return job.directory / (RESULT_FILE if along is None else f"{along}-{RESULT_FILE}")


def _measured(job: RecipeJob, on_row: RowCallback | None) -> dict[str, Any]:
    try:
        return {"rows": _study_rows(job, on_row), "problem": None}
    except Diverged as problem:
        return {"rows": [], "problem": str(problem)}


def _study_rows(job: RecipeJob, on_row: RowCallback | None) -> list[dict[str, Any]]:
    match job.study:
        case StabilityCurves():
            return _stability_rows(job.study, _settings(job), job.directory / "stability", on_row)
        case FeatureCounts():
            return _feature_rows(job.study, _settings(job), job.directory / FEATURES, on_row)
        case CountedCosts():
            return _cost_rows(job.study, job)
        case BoundedRun():
            return _bound_rows(job.study, job.key.seed)
    raise AssertionError(job.study)


def _settings(job: RecipeJob) -> RunSettings:
    return Experiment.from_table(job.table).settings()


def _stability_rows(
    study: StabilityCurves, settings: RunSettings, directory: Path, on_row: RowCallback | None
) -> list[dict[str, Any]]:
    from fedkeel.studies.stability import stability  # noqa: PLC0415  heavy

    found = stability(
        settings,
        SERIAL,
        pairs=study.pairs,
        local_rounds=[min(study.local_round, settings.rounds - 1)],
        points=study.points,
        directory=directory,
        progress=None if on_row is None else lambda run, row: None if row is None else on_row(row),
    )
    curve = found.mean if study.along == "rounds" else found.local[0].distances
    return [{"round": index - 1, "distance": value} for index, value in enumerate(curve) if index]


def _feature_rows(
    study: FeatureCounts, settings: RunSettings, directory: Path, on_row: RowCallback | None
) -> list[dict[str, Any]]:
    from fedkeel.studies.interaction import FeatureSettings  # noqa: PLC0415  heavy
    from fedkeel.studies.interaction import study as measure  # noqa: PLC0415

    features = FeatureSettings(
        study.every, study.points, study.components, study.gamma_corr, gammas=study.gammas
    )
    rows = []
    for one in measure(settings, SERIAL, features=features, directory=directory, progress=on_row):
        row = {key: value for key, value in one._asdict().items() if key not in ("sweep", "histogram")}
        counts = {f"features@{gamma:g}": count for gamma, count in one.sweep}
        rows.append({**row, **counts, "round": one.round - 1})
    return rows


def _cost_rows(study: CountedCosts, job: RecipeJob) -> list[dict[str, Any]]:
    from fedkeel.studies.costs import count  # noqa: PLC0415  heavy

    method = Experiment.from_table(job.table).make_method()
    found = count([(job.key.row, method)], rounds=study.rounds)[0]
    columns = {
        "communication": found.unicast,
        "broadcast": found.broadcast,
        "gradients_ratio": found.gradients,
        "storage": found.stored,
        "working": found.working,
        "seconds_ratio": found.seconds,
    }
    return [{"round": 0, **columns}]


def _bound_rows(study: BoundedRun, seed: int) -> list[dict[str, Any]]:
    from fedkeel.papers.reproduce.bounded_run import ProblemSettings, run  # noqa: PLC0415  heavy

    found = run(ProblemSettings(**dataclasses.asdict(study), seed=seed))
    first = found.lines[0].loss
    roughness = found.found["L_pairs"] / found.found["L_power"]
    return [
        {
            "round": line.round - 1,
            "loss": line.loss,
            "bound": line.bound,
            "tightness": line.loss / line.bound,
            "log_loss": math.log10(line.loss / first),
            "log_bound": math.log10(line.bound / first),
            "roughness": roughness,
        }
        for line in found.lines[1:]
    ]
