"""Going back from a divergence: the round is played again from the state before it, with smaller steps.

The state before a round and the clients' memories are those of the last finished round, so nothing has to be
kept for it. Smaller steps stay: what is recorded in the rows decides them, so a resumed run goes on with the
same ones, to the bit. To find a divergence while the state before is still good, the model and the training
loss have limits here, far above what a run that learns ever shows. A model of a finite norm that has grown a
million times in a round has diverged in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedkeel.columns import ROLLED_BACK
from fedkeel.errors import Diverged
from fedkeel.running.round import RoundLimits, RoundOutcome, Row, RunContext, RunState, play_round
from fedkeel.running.store import Store
from fedkeel.vector import norm

_NORM_FACTOR = 5.0  # times the largest norm so far; models may begin at zero, so there is a least one:
_NORM_FACTOR_TO_STOP = 1e6  # a run that does not go back is ended only where nothing can be saved
_LEAST_NORM, _LEAST_ENTRY = 10.0, 0.1  # or that of a model whose entries are all so large
_LOSS_FACTOR = 100.0  # times the first round's training loss plus 1


class Retries:
    """Plays rounds, and plays them again with smaller steps where they diverge and the run asks for it."""

    def __init__(self) -> None:
        self._seen = 0  # rows
        self._norm = 0.0  # the largest
        self._factors: list[float] = []

    def play(
        self, context: RunContext, state: RunState, store: Store, history: Sequence[Row]
    ) -> RoundOutcome:
        """Play one round."""
        settings = context.settings
        self._see(history)
        events: list[Row] = []
        while True:
            rate = math.prod([*self._factors, *(event["factor"] for event in events)])
            try:
                outcome = play_round(context, state, store, self._limits(context, state, history, rate))
            except Diverged as problem:
                if settings.on_divergence == "stop":
                    raise
                tries = len(self._factors) + len(events)
                if tries >= settings.rollback_tries:
                    problem.args = (f"{problem} (after {tries} rollbacks; rollback_tries allows no more)",)
                    raise
                told = {"reason": str(problem), "client": problem.client, "layer": problem.layer}
                events.append({**told, "factor": settings.rollback_factor})
                continue
            if events:
                outcome.row[ROLLED_BACK] = events
            return outcome

    def _see(self, history: Sequence[Row]) -> None:
        """Take rows in that are new: that of the last round, or all of a run that was resumed."""
        for row in history[self._seen :]:
            self._norm = max(self._norm, row["norm"])
            self._factors += [event["factor"] for event in row.get(ROLLED_BACK, ())]
        self._seen = len(history)

    def _limits(
        self, context: RunContext, state: RunState, history: Sequence[Row], rate: float
    ) -> RoundLimits:
        x0 = state.x0  # that of the stage
        largest = max(self._norm, float(norm(x0)), _LEAST_NORM, _LEAST_ENTRY * math.sqrt(x0.numel()))
        if context.settings.on_divergence == "stop":
            return RoundLimits(rate, _NORM_FACTOR_TO_STOP * largest)
        loss = _LOSS_FACTOR * (1.0 + abs(history[0]["train_loss"])) if history else math.inf
        return RoundLimits(rate, _NORM_FACTOR * largest, loss)
