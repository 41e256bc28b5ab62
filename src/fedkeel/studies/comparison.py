"""Comparisons: methods × seeds below one directory, each run in a directory of its own, all resumable."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, model_validator

from fedkeel.common.errors import ConfigError, Diverged, StorageError
from fedkeel.common.files import make_directory, storage_errors, write_durably
from fedkeel.common.jsonfiles import Shape, fitting
from fedkeel.common.progress import RunsDone
from fedkeel.common.tomlfile import dump_sealed, flat, inline, read_sealed
from fedkeel.experiments import COMPARISON_FILE
from fedkeel.experiments.experiment import Experiment, ExperimentShape
from fedkeel.experiments.expression import parse_method, spell_method
from fedkeel.experiments.placement import ONE_BY_ONE, Placement
from fedkeel.experiments.run_all import RunEvents, SeveralEvents, run_all
from fedkeel.experiments.scoring import check_scoring, directed
from fedkeel.report.measures import Measure, parse_measure, plain_measure
from fedkeel.report.table_columns import COLUMNS, parse_columns
from fedkeel.report.tables import UNFINISHED, Trial
from fedkeel.running.run_directory import count_rows, is_whole, read_rows
from fedkeel.settings.options import Execution

if TYPE_CHECKING:
    from fedkeel.running.round import Row

SPEED_ONLY = ("rounds", "target", "track", *(name for name in Execution.model_fields if name != "device"))


class PlannedRun(NamedTuple):
    """One run of a comparison, a sweep or a robustness study: an experiment and where it is kept."""

    method: str
    experiment: Experiment
    directory: Path

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.experiment.seed

    @property
    def rounds(self) -> int:
        """How many rounds it has."""
        return self.experiment.rounds

    @property
    def cost(self) -> float:
        """What a round costs: runs of a plan count alike."""
        return 1.0

    @property
    def sendable(self) -> tuple[Callable[..., Trial], tuple[Any, ...]]:
        """A function that makes it in another process, and what that takes."""
        return run_planned, (self.method, self.experiment.table(), str(self.directory))

    def __str__(self) -> str:
        return f"{self.method}, seed {self.seed}"

    def rounds_done(self) -> int:
        """Return how many rounds are on disk: the lines of its metrics."""
        return count_rows(self.directory)

    def finished(self) -> Trial | None:
        """Return a run that is done already, None where there is something left to do."""
        rows = self._rows()
        return None if rows is None else Trial(self.method, self.seed, rows)

    def _rows(self) -> list[dict[str, Any]] | None:
        if not (self.directory / "model.safetensors").exists() or not is_whole(self.directory):
            return None
        rows = read_rows(self.directory)
        same = _essence(Experiment.load(self.directory)) == _essence(self.experiment)
        return rows if same and len(rows) == self.experiment.rounds else None

    def run(self, on_row: Callable[[Row], None] | None = None) -> Trial:
        """Train, or go on, or read what is there; a run that diverges is a result too."""
        before = self.finished()
        if before is not None:
            return before
        try:
            result = self.experiment.train(self.directory, resume=True, callback=on_row)
        except Diverged as problem:
            return Trial(self.method, self.seed, read_rows(self.directory), str(problem))
        return Trial(self.method, self.seed, result.history)


class _SavedOnce(RunEvents):
    """Writes what is compared with the first round: a mistake in the settings leaves nothing behind."""

    def __init__(self, comparison: Comparison, out: Path) -> None:
        self._comparison, self._out, self._saved = comparison, out, False

    def row(self, run: Any, row: Any) -> None:
        """Write it."""
        if not self._saved:
            self._comparison.save(self._out)
            self._saved = True

    def progress(self, done: RunsDone, rounds: Mapping[Path, int]) -> None:
        """Write it once a round is on disk."""
        if any(rounds.values()):
            self.row(None, None)


def play(
    comparison: Comparison, out: Path, placement: Placement | None = None, events: RunEvents | None = None
) -> list[Trial]:
    """Run what is not run yet, where `placement` says; return the runs method by method."""
    jobs = comparison.jobs(out)
    told = SeveralEvents(_SavedOnce(comparison, out), events or RunEvents())
    found = run_all(jobs, out, placement or ONE_BY_ONE, told)
    return [
        found[job.directory] for job in sorted(jobs, key=lambda job: comparison.methods.index(job.method))
    ]


def run_planned(label: str, table: Mapping[str, Any], directory: str) -> Trial:
    """Do one planned run, from what can be sent to another process."""
    return PlannedRun(label, Experiment.from_table(table), Path(directory)).run()


class _ComparisonShape(Shape):
    """What the file of a comparison must hold; older ones say less."""

    methods: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    folders: list[str] | None = None
    measure: str = "final"
    columns: list[str] | None = None
    experiment: ExperimentShape

    @model_validator(mode="after")
    def _has_a_folder_for_each(self) -> _ComparisonShape:
        if self.folders is not None and len(self.folders) != len(self.methods):
            raise ValueError(f"there are {len(self.methods)} methods and {len(self.folders)} folders")
        return self


class Comparison(NamedTuple):
    """Methods, each with the name of its directory, and seeds, and the experiment that all runs share.

    `measure` is what methods are ranked by, `columns` are those of the table.
    """

    methods: tuple[str, ...]
    folders: tuple[str, ...]
    seeds: tuple[int, ...]
    base: Experiment
    measure: str = "final"
    columns: tuple[str, ...] = COLUMNS

    @classmethod
    def of(
        cls,
        methods: Sequence[str],
        seeds: int,
        base: Experiment,
        measure: str = "final",
        columns: str | Sequence[str] = COLUMNS,
    ) -> Comparison:
        """Check the methods and compare them on that many seeds; `measure` says what counts."""
        measure = directed(plain_measure(measure), base)
        columns = tuple(directed(name, base) for name in parse_columns(columns))
        if not methods:
            raise ConfigError("nothing to compare: name the methods, as in --method fedavg --method scaffold")
        made: dict[str, str] = {}
        for text in methods:
            key = repr(parse_method(text))
            if key in made:
                raise ConfigError(f"{text!r} is given twice (as {made[key]!r}): leave one out")
            made[key] = text
        named = tuple(spell_method(text) for text in methods)
        comparison = cls(named, tuple(map(folder, named)), tuple(range(seeds)), base, measure, columns)
        check_scoring([comparison.experiment(method, 0) for method in named], measure, columns)
        return comparison

    def jobs(self, out: Path) -> list[PlannedRun]:
        """Return the runs, seed after seed, so that a first impression of all methods comes early."""
        return [
            PlannedRun(method, self.experiment(method, seed), out / name / f"seed-{seed}")
            for seed in self.seeds
            for method, name in zip(self.methods, self.folders, strict=True)
        ]

    def experiment(self, method: str, seed: int) -> Experiment:
        """Return what one run trains; both were checked when the comparison was made."""
        return self.base.model_copy(update={"method": method, "seed": seed})

    @property
    def score(self) -> Measure:
        """Return what a run is scored by."""
        return parse_measure(self.measure)

    def save(self, out: Path) -> None:
        """Write what is compared, so that the comparison can be resumed and shown."""
        table = {
            "methods": list(self.methods),
            "folders": list(self.folders),
            "seeds": list(self.seeds),
            "measure": self.measure,
            "columns": list(self.columns),
            "experiment": self.base.table(),
        }
        with storage_errors(out):
            make_directory(out)
            write_durably(out / COMPARISON_FILE, dump_sealed(table).encode())

    @classmethod
    def load(cls, out: Path) -> Comparison:
        """Read a comparison back as it was saved, without checking it again, which would need PyTorch."""
        try:
            table = fitting(read_sealed(out / COMPARISON_FILE), _ComparisonShape)
            methods, seeds = tuple(table["methods"]), tuple(table["seeds"])
            folders = tuple(table["folders"] if "folders" in table else map(folder, methods))
            base, measure = Experiment.unchecked(table["experiment"]), table.get("measure", "final")
            parse_measure(measure)
            columns = parse_columns(table.get("columns", COLUMNS))
            return cls(methods, folders, seeds, base, measure, columns)
        except (OSError, ValueError) as problem:
            reason = (problem.strerror if isinstance(problem, OSError) else None) or problem
            raise StorageError(
                f"{out / COMPARISON_FILE}: cannot be read: {reason}: restore it, or compare anew elsewhere"
            ) from None

    def command(self) -> str:
        """Return the command line that makes this comparison again."""
        return " ".join(
            [
                "fedkeel compare",
                *(f"--method {shlex.quote(method)}" for method in self.methods),
                f"--seeds {len(self.seeds)}",
                *([] if self.measure == "final" else [f"--measure {shlex.quote(self.measure)}"]),
                *([] if self.columns == COLUMNS else [f"--columns {shlex.quote(','.join(self.columns))}"]),
                *self._settings(),
            ]
        )

    def command_of_run(self, method: str, seed: int) -> str:
        """Return the command line that makes one of its runs again."""
        return " ".join([f"fedkeel run --method {shlex.quote(method)} --seed {seed}", *self._settings()])

    def _settings(self) -> list[str]:
        return [f"--set {shlex.quote(setting)}" for setting in changes(self.base) if setting[:5] != "seed="]


def kept_trials(comparison: Comparison, directory: Path) -> list[Trial]:
    """Return the runs of a comparison as far as they are."""
    trials = []
    for job in comparison.jobs(directory):
        rows = read_rows(job.directory)
        missing = len(rows) < comparison.base.rounds
        trials.append(Trial(job.method, job.seed, rows, UNFINISHED if missing else None))
    return sorted(trials, key=lambda trial: comparison.methods.index(trial.label))


def changes(experiment: Experiment) -> list[str]:
    """Return the settings that make an experiment of the default one."""
    default = flat(Experiment().table())
    given = flat(experiment.table())
    return [f"{key}={_shown(value)}" for key, value in given.items() if default.get(key) != value]


def folder(method: str) -> str:
    """Return a directory's name for a method: readable, and of its own for every setting."""
    name = re.sub(r"[^a-z0-9.]+", "-", method.lower()).strip("-.")
    if name == method.lower():
        return name
    return f"{name[:48]}-{hashlib.sha256(repr(parse_method(method)).encode()).hexdigest()[:6]}"


def _essence(experiment: Experiment) -> dict[str, Any]:
    """Return what the rows depend on; methods may be written in several ways."""
    table = {key: value for key, value in experiment.table().items() if key not in SPEED_ONLY}
    return {**table, "method": repr(experiment.algorithm())}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else inline(value)
