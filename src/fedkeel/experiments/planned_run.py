"""One run of a study: an experiment and where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedkeel.common.errors import Diverged
from fedkeel.common.tomlfile import flat, inline
from fedkeel.experiments.experiment import Experiment
from fedkeel.report.tables import UNFINISHED, Trial
from fedkeel.running.run_directory import count_rows, is_whole, read_rows
from fedkeel.settings.options import Execution

if TYPE_CHECKING:
    from fedkeel.running.round import Row

# settings that no row depends on: runs go on with others
SPEED_ONLY = ("rounds", "target", "track", *(name for name in Execution.model_fields if name != "device"))


class PlannedRun(NamedTuple):
    """One run of a comparison, a sweep or a robustness study: an experiment and where it is kept.

    `label` is what it is called there: its method, or a sweep's value.
    """

    label: str
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
        return run_planned, (self.label, self.experiment.table(), str(self.directory))

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}"

    def rounds_done(self) -> int:
        """Return how many rounds are on disk: the lines of its metrics."""
        return count_rows(self.directory)

    def finished(self) -> Trial | None:
        """Return a run that is done already, None where there is something left to do."""
        if not (self.directory / "model.safetensors").exists() or not is_whole(self.directory):
            return None
        rows = read_rows(self.directory)
        same = _essence(Experiment.load(self.directory)) == _essence(self.experiment)
        return Trial(self.label, self.seed, rows) if same and len(rows) == self.experiment.rounds else None

    def so_far(self) -> Trial:
        """Return what is there of it, finished or not."""
        rows = read_rows(self.directory)
        return Trial(self.label, self.seed, rows, UNFINISHED if len(rows) < self.experiment.rounds else None)

    def run(self, on_row: Callable[[Row], None] | None = None) -> Trial:
        """Train, or go on, or read what is there; a run that diverges is a result too."""
        before = self.finished()
        if before is not None:
            return before
        try:
            result = self.experiment.train(self.directory, resume=True, callbacks=on_row)
        except Diverged as problem:
            return Trial(self.label, self.seed, read_rows(self.directory), str(problem))
        return Trial(self.label, self.seed, result.history)


def run_planned(label: str, table: Mapping[str, Any], directory: str) -> Trial:
    """Do one planned run, from what can be sent to another process."""
    return PlannedRun(label, Experiment.from_table(table), Path(directory)).run()


def changes(experiment: Experiment) -> list[str]:
    """Return the settings that make an experiment of the default one."""
    default = flat(Experiment().table())
    given = flat(experiment.table())
    return [f"{key}={_shown(value)}" for key, value in given.items() if default.get(key) != value]


def _essence(experiment: Experiment) -> dict[str, Any]:
    """Return what the rows depend on; methods may be written in several ways."""
    table = {key: value for key, value in experiment.table().items() if key not in SPEED_ONLY}
    return {**table, "method": repr(experiment.make_method())}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else inline(value)
