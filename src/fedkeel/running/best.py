"""The best model of a run so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from fedkeel.common.errors import ConfigError
from fedkeel.common.interrupts import uninterrupted
from fedkeel.running.callbacks import Callback
from fedkeel.running.round import Row
from fedkeel.running.selection import Selection
from fedkeel.running.session import Session
from fedkeel.tensors.vector import Vector

_PLAIN = ("round", "score", "column")


class KeptModel(NamedTuple):
    """A round's model: its vector and its float buffers, and how good it is by which column."""

    round: int
    score: float
    column: str
    vector: Vector
    buffers: Vector


class BestKeeper(Callback):
    """Keeps the model of the best round, of equals the first; by the evaluation there is where not told."""

    def __init__(self, session: Session, selection: Selection | None = None) -> None:
        self._session = session
        self._asked = selection is not None
        self._selection = selection or Selection()
        self._kept: KeptModel | None = None
        self._seen = 0  # rounds

    def on_run_begin(self, rows: Sequence[Row]) -> None:
        """Skip the rounds before: a checkpoint holds the best model of those."""
        self._seen = len(rows)

    def on_round_end(self, row: Row) -> None:
        """Keep the model where it is better than those before."""
        self._see_last_round()

    @property
    def kept(self) -> KeptModel | None:
        """Return the best model; a signal may have ended the run before `on_round_end`."""
        self._see_last_round()
        return self._kept

    def _see_last_round(self) -> None:
        context, state, history = self._session.context, self._session.state, self._session.history
        if self._seen == len(history):
            return
        with uninterrupted():
            row, self._seen = history[-1], len(history)
            score = self._selection.score(row)
            if score is not None and (self._kept is None or score > self._kept.score):
                model, buffers = context.model(state).clone(), state.buffers.clone()
                self._kept = KeptModel(row["round"], score, self._selection.column(row), model, buffers)

    def values(self) -> dict[str, Any]:
        """Return what a checkpoint says of it beside its tensors."""
        chosen, best = {"metric": self._selection.metric, "mode": self._selection.mode}, self.kept
        return {**chosen, **({} if best is None else {name: getattr(best, name) for name in _PLAIN})}

    def tensors(self) -> dict[str, Tensor]:
        """Return its tensors for a checkpoint."""
        return {} if self.kept is None else {"vector": self.kept.vector, "buffers": self.kept.buffers}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on with what a checkpoint holds; by the column it was chosen by before."""
        if "round" not in values:
            return
        before = Selection(values["metric"], values["mode"])
        if self._asked and self._selection != before:
            was = "by the evaluation there is" if before.metric is None else f"by {before.metric!r}"
            raise ConfigError(
                f"metric = {self._selection.metric!r}: this run has kept its best model {was}: "
                "go on with the same metric, or leave it out"
            )
        self._selection = before
        named = {name: values[name] for name in _PLAIN}
        self._kept = KeptModel(**named, vector=tensors["vector"], buffers=tensors["buffers"])
