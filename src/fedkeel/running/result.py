"""What a run gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedkeel.common.client_table import ClientTable
from fedkeel.common.columns import HistoryColumn, shown_events, shown_score, shown_value
from fedkeel.common.errors import ConfigError, DataError
from fedkeel.common.picture import inline_lines
from fedkeel.common.progress import shown_time
from fedkeel.common.summary import as_html, as_text
from fedkeel.core.oracle import Oracle, device_of
from fedkeel.core.task import Task
from fedkeel.data.federation import Federation, Transform
from fedkeel.data.samples import InMemory, Samples
from fedkeel.engines.contract import Choice
from fedkeel.running.clients import evaluate_clients
from fedkeel.running.round import Row
from fedkeel.tensors.records import Record
from fedkeel.tensors.trees import described

Trained = nn.Module | str  # a module, or why there is none


@dataclass(frozen=True, eq=False)
class BestRound:
    """The best round of a run: its number (from 0), its row, its model, and the column it was chosen by.

    `selected_on` says what that column was evaluated on: "validation", "test" or "clients" (all their data).
    """

    round: int
    row: Row
    column: str
    trained: Trained = field(repr=False)
    selected_on: str | None = None

    def describe(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        return {"round": self.round, "column": self.column, "selected_on": self.selected_on}

    @property
    def caveat(self) -> str:
        """Return what is to be said where the best round was chosen by the test set; else nothing."""
        chosen = "selected on the test set; federation.with_validation(0.1) holds out data to select on"
        return f" ({chosen})" if self.selected_on == "test" else ""

    @property
    def model(self) -> nn.Module:
        """Return its model, in evaluation mode."""
        return _module(self.trained)


@dataclass(frozen=True, eq=False)
class Result:
    """What a run gives: a row per round, the trained model, the server's state, the client states.

    `best` is the best round, None where no round was evaluated; `choice` is which engine ran it and why;
    `stopped_by` names the callback that ended it early; `columns` is what the run's probes declare of theirs.
    It prints itself in a few lines.
    """

    method: str
    history: list[Row]
    trained: Trained
    server: Record
    client_states: Mapping[int, Record]
    manifest: Mapping[str, Any]
    choice: Choice
    run_dir: Path | None = None
    best: BestRound | None = None
    stopped_by: str | None = None
    client_table: ClientTable | None = None
    task: Task | None = None
    transform: Transform | None = None
    labels: Sequence[str] | None = None
    columns: Sequence[HistoryColumn] = ()

    @property
    def model(self) -> nn.Module:
        """Return the model after the last round, in evaluation mode."""
        return _module(self.trained)

    def evaluate(self, data: Any, *, device: str | torch.device = "cpu") -> dict[str, float]:
        """Return the loss and the metrics of the model on other data.

        A `Federation` is evaluated on its test set, or on all its clients' data. A pair `(x, y)` of arrays or
        a torch `Dataset` holds samples as the run's federation stores them: its transform is applied.
        """
        oracle = self._oracle(device)
        if not isinstance(data, Federation):
            data = Federation.from_arrays([data], transform=self.transform)
        samples = self._numbered(
            data.everything if data.test is None else data.test, data.origin.get("labels")
        )
        try:
            return oracle.evaluate(oracle.point, oracle.buffers, samples, data.prepare)
        except (RuntimeError, IndexError, ValueError, TypeError) as problem:
            inputs, target = (described(tree) for tree in samples.sample())
            raise DataError(
                f"evaluate: model, loss or metrics do not take inputs that are {inputs} with targets that "
                f"are {target}: {str(problem).splitlines()[0]}"
            ) from problem

    def per_client(
        self, federation: Federation | None = None, *, device: str | torch.device = "cpu"
    ) -> ClientTable:
        """Return how the model does client by client: loss, metrics, samples, and in how many rounds it was.

        A run whose clients have test sets of their own has this table. Else give the federation: clients
        without a test set are evaluated on their training data, and the table says so.
        """
        if federation is None:
            if self.client_table is None:
                raise ConfigError(
                    "per_client: the run's clients have no test sets of their own: give the federation to "
                    "evaluate each client's data, as in result.per_client(federation)"
                )
            return self.client_table
        oracle = self._oracle(device)
        return evaluate_clients(
            federation,
            self.history,
            lambda data: oracle.evaluate(oracle.point, oracle.buffers, data, federation.prepare),
        )

    def _oracle(self, device: str | torch.device) -> Oracle:
        model = self.model
        if self.task is None:
            raise ConfigError("evaluate needs loss and metrics: give the task, as in fk.load(run_dir, task)")
        return Oracle(replace(self.task, model=model), device_of(device))

    def _numbered(self, samples: Samples, labels: Sequence[str] | None) -> Samples:
        """Return samples with the run's class numbers, where words were numbered without the run's others."""
        if labels is None or labels == self.labels:
            return samples
        known = list(self.labels or ())
        for word in labels:
            if word not in known:
                raise DataError(f"evaluate: no class of the run is {word!r}; known: {known}")
        x, y = samples.sample()
        return InMemory(x, torch.tensor([known.index(word) for word in labels])[y])

    def to_pandas(self) -> Any:
        """Return the history as a pandas DataFrame."""
        try:
            import pandas  # noqa: PLC0415  an extra
        except ImportError:
            raise ConfigError('Result.to_pandas() needs pandas: pip install "fedkeel[pandas]"') from None
        return pandas.DataFrame(self.history)

    def __repr__(self) -> str:
        return as_text(*self._summary())

    def _repr_html_(self) -> str:
        points = [
            (row["round"] + 1, row[self._shown]) for row in self.history if row.get(self._shown) is not None
        ]
        return as_html(*self._summary()) + (
            inline_lines(self._shown, {self.method: points}) if points else ""
        )

    @property
    def _shown(self) -> str:
        """The column whose curve a notebook shows: the accuracy, else the loss of the training."""
        return next(
            (n for n in ("accuracy", "loss") if any(r.get(n) is not None for r in self.history)), "train_loss"
        )

    def _summary(self) -> tuple[str, dict[str, str]]:
        rows = self.history
        seconds = shown_time(sum(row["seconds"] for row in rows))
        facts = {}
        score = next((text for row in reversed(rows) if (text := shown_score(row)) is not None), None)
        if score is not None:
            facts["score"] = str(score)
        elif rows:
            facts["train loss"] = f"{rows[-1]['train_loss']:.4f}; nothing was evaluated"
        if self.best is not None:
            shown = shown_value(self.best.column, self.best.row[self.best.column])
            name = self.best.column.replace("_", " ")
            facts["best"] = f"{name} {shown} after round {self.best.round + 1}{self.best.caveat}"
        facts |= shown_events(rows)
        facts["engine"] = str(self.choice)
        if self.stopped_by is not None:
            facts["stopped by"] = self.stopped_by
        if self.run_dir is not None:
            facts["kept in"] = str(self.run_dir)
        return f"Result of {self.method}: {len(rows)} round{'s' * (len(rows) != 1)} in {seconds}", facts


def _module(trained: Trained) -> nn.Module:
    if isinstance(trained, str):
        raise ConfigError(trained)
    return trained
