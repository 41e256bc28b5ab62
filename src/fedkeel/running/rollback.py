"""Going back from a divergence: the round is played again from the state before it, with smaller steps.

The state before a round and the client states are those of the last finished round, so nothing has to be
kept for it. Smaller steps stay: what is recorded in the rows decides them, so a resumed run goes on with the
same ones, to the bit. To find a divergence while the state before is still good, the model and the training
loss have limits here, far above what a run that learns ever shows. A model of a finite norm that has grown a
million times in a round has diverged in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedkeel.common.columns import ROLLED_BACK
from fedkeel.common.errors import Diverged
from fedkeel.running.round import RoundLimits, Row, RunContext, RunState
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.vector import norm

_NORM_FACTOR = 5.0  # times the largest norm so far; models may begin at zero, so there is a least one:
_NORM_FACTOR_TO_STOP = 1e6  # a run that does not go back is ended only where nothing can be saved
_LEAST_NORM, _LEAST_ENTRY = 10.0, 0.1  # or that of a model whose entries are all so large
_LOSS_FACTOR = 100.0  # times the first round's training loss plus 1


class Rollbacks:
    """The limits of a run's rounds, and its rollbacks; `events` are those of the round in progress."""

    def __init__(self) -> None:
        self.events: list[Row] = []
        self._seen = 0  # rows
        self._norm = 0.0  # the largest
        self._factors: list[float] = []

    def add(self, settings: RunSettings, problem: Diverged) -> None:
        """Note why the round is played again with smaller steps; raise the problem where it is not."""
        if settings.on_divergence == "stop":
            raise problem
        tries = len(self._factors) + len(self.events)
        if tries >= settings.rollback_tries:
            problem.args = (f"{problem} (after {tries} rollbacks; rollback_tries allows no more)",)
            raise problem
        reason = {"reason": str(problem), "client": problem.client, "layer": problem.layer}
        self.events.append({**reason, "factor": settings.rollback_factor})

    def _read(self, history: Sequence[Row]) -> None:
        """Read the rows that are new: that of the last round, or all of a run that was resumed."""
        for row in history[self._seen :]:
            self._norm = max(self._norm, row["norm"])
            self._factors += [event["factor"] for event in row.get(ROLLED_BACK, ())]
        self._seen = len(history)

    def limits(self, context: RunContext, state: RunState, history: Sequence[Row]) -> RoundLimits:
        """Return the limits of the next try at a round, and the factor on its rate."""
        self._read(history)
        rate = math.prod([*self._factors, *(event["factor"] for event in self.events)])
        x0 = state.x0  # that of the stage
        largest = max(self._norm, float(norm(x0)), _LEAST_NORM, _LEAST_ENTRY * math.sqrt(x0.numel()))
        if context.settings.on_divergence == "stop":
            return RoundLimits(rate, _NORM_FACTOR_TO_STOP * largest)
        loss = _LOSS_FACTOR * (1.0 + abs(history[0]["train_loss"])) if history else math.inf
        return RoundLimits(rate, _NORM_FACTOR * largest, loss)
