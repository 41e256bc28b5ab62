"""Sweeps: one setting over several values and seeds, in parallel processes, each run resumable."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.errors import ConfigError
from fedkeel.common.files import storage_errors, write_durably
from fedkeel.common.jsonfiles import json_text, sealed
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.placement import ONE_BY_ONE, Placement
from fedkeel.experiments.run_all import RunEvents, run_all
from fedkeel.experiments.scoring import check_scoring, directed
from fedkeel.report import Measure, Trial, parse_measure
from fedkeel.report.measures import plain_measure
from fedkeel.report.table_columns import COLUMNS, parse_columns
from fedkeel.studies import sweep_report
from fedkeel.studies.artifacts import open_directory
from fedkeel.studies.comparison import SPEED_ONLY, PlannedRun, changes
from fedkeel.studies.sweep_report import SWEEP_FILE


class Sweep(NamedTuple):
    """A setting, its values and the seeds; `over` is a key, or a key and a text with {} for the value.

    `work.epochs` sweeps K, `method=FedInit(beta={})` β, `data.split=DirichletByClass({})` the heterogeneity,
    `cohort` the participation, `method=stages((FedDyn, {}), FedAvg)` the switch. `measure` is what values are
    compared by, `columns` are those of the table.
    """

    over: str
    values: tuple[str, ...]
    seeds: tuple[int, ...]
    base: Experiment
    measure: str = "final"
    columns: tuple[str, ...] = COLUMNS

    @classmethod
    def of(
        cls,
        over: str,
        values: Sequence[str],
        seeds: int,
        base: Experiment,
        *,
        measure: str = "final",
        columns: str | Sequence[str] = COLUMNS,
    ) -> Sweep:
        """Check that every value makes an experiment, and that it has what is measured."""
        key = over.partition("=")[0].strip()
        if not any(value.strip() for value in values):
            raise ConfigError("sweep: no values: give them, as in --values 0,0.05,0.1")
        if not key:
            raise ConfigError(f"sweep: --over {over!r}: name a setting, as in --over work.lr")
        if key == "seed":
            raise ConfigError(
                "sweep: --over seed: every value is run with the seeds of --seeds; vary another"
            )
        stripped = tuple(value.strip() for value in values)
        measure = directed(plain_measure(measure), base)
        columns = tuple(directed(name, base) for name in parse_columns(columns))
        made = cls(over, stripped, tuple(range(seeds)), base, measure, columns)
        made._check()
        check_scoring([made.experiment(value, 0) for value in stripped], measure, columns)
        return made

    @property
    def score(self) -> Measure:
        """Return what a run is scored by."""
        return parse_measure(self.measure)

    def command(self) -> str:
        """Return the command line that makes this sweep again."""
        comma = ";" if any("," in value for value in self.values) else ","
        return " ".join(
            [
                f"fedkeel sweep --over {shlex.quote(self.over)}",
                f"--values={shlex.quote(comma.join(self.values))} --seeds {len(self.seeds)}",
                *([] if self.measure == "final" else [f"--measure {shlex.quote(self.measure)}"]),
                *([] if self.columns == COLUMNS else [f"--columns {shlex.quote(','.join(self.columns))}"]),
                *(f"--set {shlex.quote(one)}" for one in changes(self.base) if one[:5] != "seed="),
            ]
        )

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
            PlannedRun(value, self.experiment(value, seed), out / value_folder(value) / f"seed-{seed}")
            for seed in self.seeds
            for value in self.values
        ]

    def settings(self) -> dict[str, Any]:
        """Return what all its runs share; values, seeds and rounds may grow."""
        free = {*SPEED_ONLY, "seed"}
        table = {key: part for key, part in self.base.table().items() if key not in free}
        return {"over": self.over, **table}


def play(
    sweep: Sweep,
    out: Path,
    *,
    placement: Placement = ONE_BY_ONE,
    events: RunEvents | None = None,
) -> list[Trial]:
    """Run what is not run yet, where `placement` says; return the runs value by value."""
    open_directory(out, "sweep", sweep.settings())
    jobs = sweep.jobs(out)
    found = run_all(jobs, out, placement, events)
    return [found[job.directory] for job in sorted(jobs, key=lambda job: sweep.values.index(job.method))]


def report(sweep: Sweep, trials: Sequence[Trial], out: Path) -> dict[str, Any]:
    """Write the numbers below `out`, and return them for people and programs."""
    numbers = sweep_report.describe(sweep.over, trials, sweep.base.target, sweep.score, sweep.columns)
    problems = {(trial.label, trial.seed): trial.problem for trial in trials}
    runs = [
        {
            "value": job.method,
            "seed": job.seed,
            "directory": str(job.directory.relative_to(out)),
            "problem": problems[job.method, job.seed],
        }
        for job in sorted(sweep.jobs(out), key=lambda job: sweep.values.index(job.method))
    ]
    found = {
        "directory": str(out),
        "page": str(out / "page.html"),
        "command": sweep.command(),
        **numbers,
        "settings": sweep.base.to_toml(),
        "runs": runs,
    }
    with storage_errors(out):
        write_durably(out / SWEEP_FILE, json_text(sealed(found), indent=2).encode())
    return found


def value_folder(value: str) -> str:
    """Return a directory's name for a value: readable, and of its own for every value."""
    name = re.sub(r"[^A-Za-z0-9.+-]+", "-", value).strip(".")
    return name if name == value and name else f"{name[:40]}-{hashlib.sha256(value.encode()).hexdigest()[:6]}"
