"""Carries out a plan: what is finished is read, the rest is run side by side, each run resumable."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.experiments.placement import Placement
from fedkeel.experiments.reproduce.estimate import job_seconds
from fedkeel.experiments.reproduce.histories import keep_history, read_history
from fedkeel.experiments.reproduce.jobs import JobResult, carry_out, finished, rounds_done
from fedkeel.experiments.reproduce.outcome import Outcome, conclude
from fedkeel.experiments.reproduce.plan import JobKey, RecipeJob, RecipePlan
from fedkeel.files import make_directory, storage_errors
from fedkeel.progress import shown_time

Told = Callable[[str], None]
_EVERY = 1.0  # seconds between two looks at the rounds on disk


class WorkDone(NamedTuple):
    """How far a plan is: jobs and rounds, done and in all, and the seconds that are left, where known."""

    jobs: int
    all_jobs: int
    rounds: int
    all_rounds: int
    left: float | None

    def __str__(self) -> str:
        text = f"{self.jobs} of {self.all_jobs} runs, {self.rounds:,} of {self.all_rounds:,} rounds"
        return text if self.left is None else f"{text}, {shown_time(self.left)} left"


class WorkMeter:
    """Follows the rounds of several runs by what they write, and estimates the time left.

    Runs differ in cost: each counts with the seconds that it is estimated to take.
    """

    def __init__(self, jobs: Sequence[RecipeJob], clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs, self._clock = list(jobs), clock
        self._weights = {job.directory: job_seconds(job) / job.rounds for job in jobs}
        self._ended: set[Path] = set()
        self._started, self._at_start = clock(), 0.0

    def end(self, job: RecipeJob, *, before: bool = False) -> None:
        """Count a job as done, now or `before` this session."""
        self._ended.add(job.directory)
        if before:
            self.begin()

    def begin(self) -> None:
        """Count what is there from now on as there before."""
        self._started, self._at_start = self._clock(), self._weight()

    def look(self) -> WorkDone:
        """Return how far it is."""
        done = {job.directory: self._rounds(job) for job in self._jobs}
        total = sum(self._weights[job.directory] * job.rounds for job in self._jobs)
        weight = self._weight()
        gained, spent = weight - self._at_start, self._clock() - self._started
        left = spent * (total - weight) / gained if gained > 0.01 * total and weight < total else None
        return WorkDone(
            len(self._ended), len(self._jobs), sum(done.values()), sum(j.rounds for j in self._jobs), left
        )

    def _weight(self) -> float:
        return sum(self._weights[job.directory] * self._rounds(job) for job in self._jobs)

    def _rounds(self, job: RecipeJob) -> int:
        return job.rounds if job.directory in self._ended else min(rounds_done(job), job.rounds)


def carry_out_plan(
    plan: RecipePlan,
    *,
    placement: Placement | None = None,
    histories: Path | None = None,
    ended: Callable[[RecipeJob, JobResult, bool], None] | None = None,
    progress: Callable[[WorkDone], None] | None = None,
) -> Outcome:
    """Run what is not run yet and conclude; `ended` hears of each run and whether it was there before.

    One by one the runs are made in this process, else in processes of their own with one thread each: by
    default one per core. Runs whose history is in `histories` are not made; those of others are put there.
    """
    jobs = plan.distinct
    if histories is not None:  # what cannot be written is found before the first run, not after it
        with storage_errors(histories):
            make_directory(histories)
    found: dict[Path, JobResult] = {}
    meter = WorkMeter(list(jobs.values()))

    def take(directory: Path, result: JobResult, *, before: bool = False) -> None:
        found[directory] = result
        if histories is not None:
            keep_history(histories, jobs[directory], result)
        meter.end(jobs[directory], before=before)
        if ended is not None:
            ended(jobs[directory], result, before)

    for directory, job in jobs.items():
        result = there(job, histories)
        if result is not None:
            take(directory, result, before=True)
    meter.begin()
    left = sorted(
        (d for d in jobs if d not in found), key=lambda d: (jobs[d].key.seed, -job_seconds(jobs[d]))
    )
    placement = placement or Placement(os.cpu_count() or 1)
    placement = placement._replace(workers=min(placement.workers, max(1, len(left))))
    look = _throttled(lambda: progress(meter.look()) if progress is not None else None)
    if placement.one_by_one:
        for directory in left:
            take(directory, carry_out(jobs[directory], lambda _row: look()))
    else:
        calls = {directory: (jobs[directory],) for directory in left}
        placement.run(carry_out_alone, calls, plan.directory.parent, take, look)
    results = {job.key: found[job.directory] for job in plan.jobs if job.directory in found}
    return conclude(plan, results)


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
    results: dict[JobKey, JobResult] = {}
    for job in plan.jobs:
        result = found[job.directory]
        if result is not None:
            results[job.key] = result
    return conclude(plan, results)


def _throttled(call: Callable[[], Any]) -> Callable[[], None]:
    last = time.monotonic()

    def now() -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            call()

    return now
