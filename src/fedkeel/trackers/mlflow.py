"""MLflow: a sqlite file, read by `mlflow ui --backend-store-uri sqlite:///mlflow.db`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkeel.common.errors import ConfigError, StorageError
from fedkeel.common.tomlfile import flat
from fedkeel.trackers.base import FINISHED, STOPPED, NoteInRunDirectory, Tracker

_SECONDS = 1.0  # between two writes: one takes milliseconds, whether it is of one round or of many
_MOST_NUMBERS, _MOST_PARAMETERS, _LONGEST = 1000, 100, 6000  # MLflow's limits of one write
_STEP_COLUMN = "train_loss"  # is in every row
_STATES = {FINISHED: "FINISHED", STOPPED: "KILLED"}


class MLflow(Tracker):
    """Writes runs to MLflow: by default to a sqlite file, which is made where there is none.

    `store` is the file, or an address of MLflow (`https://…` sends there). `experiment` is the name of the
    group of runs.
    """

    def __init__(
        self, store: str | Path = "mlflow.db", *, experiment: str = "fedkeel", name: str | None = None
    ) -> None:
        super().__init__(name)
        self.store, self.experiment = str(store), experiment
        self._client: Any = None
        self._run = ""
        self._waiting: list[Any] = []
        self._logged, self._last = 0, 0.0

    def __repr__(self) -> str:
        return f"MLflow({self.store!r})"

    def open(self, done: int) -> int:
        """Find the run that the run's directory names, or make one."""
        mlflow = _mlflow()
        note = NoteInRunDirectory(self.run_dir, "mlflow")
        self._waiting, self._last = [], time.monotonic()
        try:
            self._client = mlflow.MlflowClient(tracking_uri=_address(self.store))
            self._logged = self._found(note, mlflow)
            if self._run == "":
                self._make(note)
        except mlflow.exceptions.MlflowException as problem:
            raise StorageError(f"MLflow: {self.store}: {problem}: choose another store") from None
        return min(done, self._logged)

    def _found(self, note: NoteInRunDirectory, mlflow: Any) -> int:
        """Take up the run of before; return how many rounds it has."""
        self._run = ""
        before = note.read()
        if before.get("store") != self._noted_store:
            return 0
        try:
            history = self._client.get_metric_history(before["run"], _STEP_COLUMN)
            self._client.update_run(before["run"], status="RUNNING")
        except mlflow.exceptions.MlflowException:  # the store was made anew
            return 0
        self._run = before["run"]
        return max((one.step for one in history), default=-1) + 1

    def _make(self, note: NoteInRunDirectory) -> None:
        found = self._client.get_experiment_by_name(self.experiment)
        group = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        self._run = self._client.create_run(group, run_name=self.run_name).info.run_id
        note.write({"store": self._noted_store, "run": self._run})
        kind = _mlflow().entities.Param
        known = [
            kind(key, str(value)[:_LONGEST])
            for key, value in flat(self.settings).items()
            if value is not None
        ]
        for begin in range(0, len(known), _MOST_PARAMETERS):
            self._client.log_batch(self._run, params=known[begin : begin + _MOST_PARAMETERS])

    @property
    def _noted_store(self) -> str:
        return self.store if "://" in self.store else str(Path(self.store).resolve())

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Keep a round's numbers, and write once per second what there is."""
        if round < self._logged:
            return
        now = int(time.time() * 1000)
        kind = _mlflow().entities.Metric
        self._waiting += [
            kind(name.replace("=", "-"), float(value), now, round) for name, value in numbers.items()
        ]
        self._logged = round + 1
        if time.monotonic() - self._last > _SECONDS or len(self._waiting) > _MOST_NUMBERS:
            self._flush()

    def _flush(self) -> None:
        for begin in range(0, len(self._waiting), _MOST_NUMBERS):
            self._client.log_batch(self._run, metrics=self._waiting[begin : begin + _MOST_NUMBERS])
        self._waiting, self._last = [], time.monotonic()

    def close(self, state: str, summary: Mapping[str, Any]) -> None:
        """Write what is left and the summary, as tags, and end the run."""
        self._flush()
        kind = _mlflow().entities.RunTag
        tags = [kind(f"summary.{name}", str(value)[:_LONGEST]) for name, value in summary.items()]
        self._client.log_batch(self._run, tags=tags)
        self._client.set_terminated(self._run, status=_STATES.get(state, "FAILED"))


def _address(store: str) -> str:
    return store if "://" in store else f"sqlite:///{Path(store).resolve()}"


def _mlflow() -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before it is imported
    try:
        import mlflow  # noqa: PLC0415  an extra
        import sqlalchemy  # noqa: F401, PLC0415  which its sqlite store needs
    except ImportError:
        raise ConfigError('MLflow needs its package: pip install "fedkeel[mlflow]"') from None
    return mlflow
