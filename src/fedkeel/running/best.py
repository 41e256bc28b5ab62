"""The best model of a run so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from fedkeel.errors import ConfigError
from fedkeel.running.selection import Selection
from fedkeel.vector import Vector

_PLAIN = ("round", "score", "column")


class KeptModel(NamedTuple):
    """A round's model: its vector and its float buffers, and how good it is by which column."""

    round: int
    score: float
    column: str
    vector: Vector
    buffers: Vector


class BestKeeper:
    """Keeps the model of the best round, of equals the first; by the evaluation there is where not told."""

    def __init__(self, selection: Selection | None = None) -> None:
        self._asked = selection is not None
        self.selection = selection or Selection()
        self.kept: KeptModel | None = None

    def see(self, row: Mapping[str, Any], vector: Vector, buffers: Vector) -> None:
        """Take the model after a round, where it is better than those before."""
        score = self.selection.score(row)
        if score is not None and (self.kept is None or score > self.kept.score):
            column = self.selection.column(row)
            self.kept = KeptModel(row["round"], score, column, vector.clone(), buffers.clone())

    def values(self) -> dict[str, Any]:
        """Return what a checkpoint says of it beside its tensors."""
        chosen = {"metric": self.selection.metric, "mode": self.selection.mode}
        kept = {} if self.kept is None else {name: getattr(self.kept, name) for name in _PLAIN}
        return {**chosen, **kept}

    def tensors(self) -> dict[str, Tensor]:
        """Return its tensors for a checkpoint."""
        return {} if self.kept is None else {"vector": self.kept.vector, "buffers": self.kept.buffers}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on with what a checkpoint holds; by the column it was chosen by before."""
        if "round" not in values:
            return
        before = Selection(values["metric"], values["mode"])
        if self._asked and self.selection != before:
            was = "by the evaluation there is" if before.metric is None else f"by {before.metric!r}"
            raise ConfigError(
                f"metric = {self.selection.metric!r}: this run has kept its best model {was}: "
                "go on with the same metric, or leave it out"
            )
        self.selection = before
        named = {name: values[name] for name in _PLAIN}
        self.kept = KeptModel(**named, vector=tensors["vector"], buffers=tensors["buffers"])
