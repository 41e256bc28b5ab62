"""Carries out a plan: what is finished is read, the rest is run side by side, each run resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.files import make_directory, storage_errors
from fedkeel.experiments.placement import Placement
from fedkeel.experiments.run_all import RunEvents, SeveralEvents, run_all
from fedkeel.papers.reproduce.estimate import job_seconds
from fedkeel.papers.reproduce.histories import keep_history, read_history
from fedkeel.papers.reproduce.jobs import JobResult, carry_out, finished, rounds_done
from fedkeel.papers.reproduce.outcome import Outcome, conclude
from fedkeel.papers.reproduce.plan import RecipeJob, RecipePlan


class RecipeRun(NamedTuple):
    """A job of a recipe as one of many runs; its result may be among `histories`."""

    job: RecipeJob
    histories: Path | None = None

    @property
    def directory(self) -> Path:
        """Where it is kept."""
        return self.job.directory

    @property
    def rounds(self) -> int:
        """How many rounds it has."""
        return self.job.rounds

    @property
    def cost(self) -> float:
        """The seconds that a round is estimated to take."""
        return job_seconds(self.job) / self.job.rounds

    @property
    def sendable(self) -> tuple[Callable[..., JobResult], tuple[Any, ...]]:
        """A function that makes it in another process, and what that takes."""
        return carry_out_alone, (self.job,)

    def __str__(self) -> str:
        return str(self.job.key)

    def finished(self) -> JobResult | None:
        """Return what is there of a run that is done, else None."""
        return there(self.job, self.histories)

    def run(self, on_row: Callable[[Any], None] | None = None) -> JobResult:
        """Make it in this process, or go on with it."""
        return carry_out(self.job, on_row)

    def rounds_done(self) -> int:
        """Return how many rounds are on disk."""
        return rounds_done(self.job)


class HistoryKeeper(RunEvents):
    """Puts the history of every run that has ended into a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def ended(self, run: Any, result: JobResult, *, kept: bool) -> None:
        """Keep it."""
        keep_history(self._directory, run.job, result)


def make_runs(
    plan: RecipePlan,
    *,
    placement: Placement | None = None,
    histories: Path | None = None,
    events: RunEvents | None = None,
) -> dict[Path, JobResult]:
    """Run what is not run yet, the longest runs of a seed first; return the result of each by its directory.

    One by one the runs are made in this process, else in processes of their own with one thread each: by
    default one per core. Runs whose history is in `histories` are not made; those of others are put there.
    """
    told = [] if events is None else [events]
    if histories is not None:  # what cannot be written is found before the first run, not after it
        with storage_errors(histories):
            make_directory(histories)
        told = [HistoryKeeper(histories), *told]
    runs = [RecipeRun(job, histories) for job in plan.distinct.values()]
    placement = placement or Placement(os.cpu_count() or 1)
    return run_all(
        runs,
        plan.directory.parent,
        placement._replace(workers=min(placement.workers, max(1, len(runs)))),
        SeveralEvents(*told),
        order=lambda run: (run.job.key.seed, -run.cost * run.rounds),
    )


def carry_out_plan(
    plan: RecipePlan,
    *,
    placement: Placement | None = None,
    histories: Path | None = None,
    events: RunEvents | None = None,
) -> Outcome:
    """Run what is not run yet, and conclude."""
    return conclude_from(plan, make_runs(plan, placement=placement, histories=histories, events=events))


def conclude_from(plan: RecipePlan, found: Mapping[Path, JobResult]) -> Outcome:
    """Read the cells off the results of runs, by their directories, and judge the claims."""
    return conclude(plan, {job.key: found[job.directory] for job in plan.jobs if job.directory in found})


def carry_out_alone(job: RecipeJob) -> JobResult:
    """Do one job in a worker, with one thread, so that workers do not compete for cores."""
    return carry_out(job._replace(table={**job.table, "threads": 1}))


def there(job: RecipeJob, histories: Path | None = None) -> JobResult | None:
    """Return what is there of a run: its history, or its directory if it is finished."""
    kept = None if histories is None else read_history(histories, job)
    return finished(job) if kept is None else kept


def read_outcome(plan: RecipePlan, histories: Path | None = None) -> Outcome:
    """Conclude from the runs that are finished, and run nothing."""
    found = {directory: there(job, histories) for directory, job in plan.distinct.items()}
    return conclude_from(plan, {path: result for path, result in found.items() if result is not None})
