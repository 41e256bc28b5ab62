"""Sweeps: one setting over several values and seeds, in parallel processes, each run resumable."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedkeel.errors import ConfigError, Stopped
from fedkeel.experiments.comparison import SPEED_ONLY, PlannedRun
from fedkeel.experiments.experiment import Experiment
from fedkeel.files import storage_errors, write_durably
from fedkeel.report import find_verdict
from fedkeel.report.charts import line_chart
from fedkeel.report.choosing import ChosenValue, choose
from fedkeel.report.significance import mean_interval
from fedkeel.report.tables import MethodSummary, Trial, final, reachable_target, summarise
from fedkeel.studies.artifacts import open_directory


class Sweep(NamedTuple):
    """A setting, its values and the seeds; `over` is a key, or a key and a text with {} for the value.

    `work.epochs` sweeps K, `method=FedInit(beta={})` β, `data.split=DirichletByClass({})` the heterogeneity,
    `cohort` the participation, `method=stages((FedDyn, {}), FedAvg)` the switch.
    """

    over: str
    values: tuple[str, ...]
    seeds: tuple[int, ...]
    base: Experiment

    @classmethod
    def of(cls, over: str, values: Sequence[str], seeds: int, base: Experiment) -> Sweep:
        """Check that every value makes an experiment."""
        key = over.partition("=")[0].strip()
        if not any(value.strip() for value in values):
            raise ConfigError("sweep: no values: give them, as in --values 0,0.05,0.1")
        if not key:
            raise ConfigError(f"sweep: --over {over!r}: name a setting, as in --over work.lr")
        if key == "seed":
            raise ConfigError(
                "sweep: --over seed: every value is run with the seeds of --seeds; vary another"
            )
        made = cls(over, tuple(value.strip() for value in values), tuple(range(seeds)), base)
        made._check()
        return made

    def _check(self) -> None:
        """Make every experiment; refuse two that are the same."""
        before: dict[str, str] = {}
        for index, value in enumerate(self.values):
            if not value:
                raise ConfigError(f"sweep: value {index + 1} of {len(self.values)} is empty: leave it out")
            same = before.setdefault(self.experiment(value, 0).to_toml(), value)
            if same != value or value in self.values[:index]:
                shown = value if same == value else f"{value} (as {same})"
                raise ConfigError(f"sweep: the value {shown} is given twice: leave one out")

    def experiment(self, value: str, seed: int) -> Experiment:
        """Return what one run trains."""
        key, equals, text = self.over.partition("=")
        if equals and "{}" not in text:
            example = "method=FedInit({})" if key == "method" else f"{key}={{}}"
            raise ConfigError(f"sweep: {self.over!r}: put {{}} where the value belongs, as in {example}")
        setting = f"{key}={text.replace('{}', value) if equals else value}"
        return self.base.with_settings([setting, f"seed={seed}"])

    def jobs(self, out: Path) -> list[PlannedRun]:
        """Return the runs, seed after seed."""
        return [
            PlannedRun(value, self.experiment(value, seed), out / _folder(value) / f"seed-{seed}")
            for seed in self.seeds
            for value in self.values
        ]

    def settings(self) -> dict[str, Any]:
        """Return what all its runs share; values, seeds and rounds may grow."""
        free = {*SPEED_ONLY, "seed"}
        table = {key: part for key, part in self.base.table().items() if key not in free}
        return {"over": self.over, **table}


def play(
    sweep: Sweep, out: Path, *, workers: int = 1, done: Callable[[Trial, int, bool], None] | None = None
) -> list[Trial]:
    """Run what is not run yet, `workers` at a time.

    `done` hears of each run, how many there are now, and whether it was there already.
    """
    open_directory(out, "sweep", sweep.settings())
    jobs = sweep.jobs(out)
    trials: dict[tuple[str, int], Trial] = {}

    def take(trial: Trial, *, kept: bool = False) -> None:
        trials[trial.method, trial.seed] = trial
        if done is not None:
            done(trial, len(trials), kept)

    open_jobs = []
    for job in jobs:
        rows = job.finished()
        if rows is None:
            open_jobs.append(job)
        else:
            take(Trial(job.method, job.seed, rows), kept=True)
    if workers == 1:
        for job in open_jobs:
            take(_run(job.method, job.experiment.table(), str(job.directory)))
    elif open_jobs:
        _in_parallel(open_jobs, workers, take)
    return [trials[value, seed] for value in sweep.values for seed in sweep.seeds]


def _in_parallel(jobs: Sequence[PlannedRun], workers: int, take: Callable[[Trial], None]) -> None:
    others = active_children()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_ignore_interrupts)
    try:
        futures = [pool.submit(_run, job.method, job.experiment.table(), str(job.directory)) for job in jobs]
        for future in as_completed(futures):
            take(future.result())
    except KeyboardInterrupt:
        for worker in active_children():
            if worker not in others:
                worker.terminate()
        raise Stopped("stopped; runs that were begun go on from their checkpoints") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def _run(label: str, table: dict[str, Any], directory: str) -> Trial:
    """Do one run; a worker of its own gives it one thread, so that workers do not fight for cores."""
    return PlannedRun(label, Experiment.from_table(table), Path(directory)).run()


class SweepOutcome(NamedTuple):
    """A sweep's table, the plot, and the best value: by validation data where there is some."""

    lines: list[MethodSummary]
    best: ChosenValue
    plot: str


def conclude(sweep: Sweep, trials: Sequence[Trial]) -> SweepOutcome:
    """Return the table over values, the best setting and a plot of the final accuracy against the value."""
    table = [
        line for line in summarise(trials, sweep.base.target or reachable_target(trials)) if line.model == "x"
    ]
    evaluated = [line for line in table if line.accuracy is not None]
    positions = {value: _number(value, index) for index, value in enumerate(sweep.values)}
    mean = sorted((positions[line.method], 100 * (line.accuracy or 0.0)) for line in evaluated)
    series = {"mean": mean}
    if len(sweep.seeds) > 1:
        for seed in sweep.seeds:
            ends = [(positions[t.method], final(t)) for t in trials if t.seed == seed]
            series[f"seed {seed}"] = sorted((a, 100 * b) for a, b in ends if b is not None)
    plot = line_chart(f"final accuracy, % against {sweep.over}", series, x=sweep.over)
    return SweepOutcome(table, choose(trials), plot.file())


def report(sweep: Sweep, trials: Sequence[Trial], out: Path) -> dict[str, Any]:
    """Write the plot and the table below `out`, and return the numbers for people and programs."""
    outcome = conclude(sweep, trials)
    intervals = {value: mean_interval(_finals(trials, value)) for value in sweep.values}
    found = {
        "directory": str(out),
        "over": sweep.over,
        "best": outcome.best.value,
        "best_by": outcome.best.column,
        "best_score": outcome.best.score,
        "best_note": outcome.best.note,
        "target": sweep.base.target or reachable_target(trials),
        "table": [{**line._asdict(), "interval": intervals[line.method]} for line in outcome.lines],
        "verdict": find_verdict(trials, outcome.best.scored).as_dict(),
        "problems": [f"{t.method}, seed {t.seed}: {t.problem}" for t in trials if t.problem],
    }
    with storage_errors(out):
        write_durably(out / "sweep.svg", outcome.plot.encode())
        write_durably(out / "sweep.json", json.dumps(found, ensure_ascii=False, indent=2).encode())
    return found


def _finals(trials: Sequence[Trial], value: str) -> list[float]:
    return [end for trial in trials if trial.method == value and (end := final(trial)) is not None]


def _number(value: str, index: int) -> float:
    """Return where a value stands on the axis: itself where it is a number, else its index in the list."""
    try:
        return float(value)
    except ValueError:
        return float(index)


def _folder(value: str) -> str:
    name = re.sub(r"[^A-Za-z0-9.+-]+", "-", value).strip(".")
    return name if name == value and name else f"{name[:40]}-{hashlib.sha256(value.encode()).hexdigest()[:6]}"
