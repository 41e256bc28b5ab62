"""When a run that was played to its end has diverged all the same: its loss or its norm has exploded.

A diverging linear model can keep 90 % accuracy, so the accuracy cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

LOSS_FACTOR = 10.0  # times the first loss
FIRST_LOSS = (1.0, 20.0)  # the first loss is taken as at least and at most this
NORM_FACTOR = 100.0  # times the first norm; or the number of rounds, where that is more


def find_explosion(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return how a run has exploded, told by its last loss and its last norm; None where it has not.

    - A loss or norm that is no finite number, in any round.
    - A last loss (of training, where nothing was evaluated) above 10 times the first, which is taken as
      between 1 and 20: a run that begins at a loss of 0.1 may end at 5, and one that begins at 1e9 has
      exploded in its first round.
    - A last norm above 100 times the norm after the first round, or above as many times as there are rounds
      where these are more than 100: a model whose steps do not grow moves no further.
    """
    for row in rows:
        for name in ("loss", "train_loss", "norm"):
            if row.get(name) is not None and not math.isfinite(row[name]):
                return f"the {_NAMES[name]} is {row[name]} in round {row['round']}"
    losses = _values("loss", rows) or _values("train_loss", rows)
    if losses:
        low, high = FIRST_LOSS
        if losses[-1] > LOSS_FACTOR * min(max(losses[0], low), high):
            return f"the loss ended at {losses[-1]:.3g}, after {losses[0]:.3g} at first"
    norms = _values("norm", rows)
    if norms and norms[0] > 0 and norms[-1] > norms[0] * max(NORM_FACTOR, len(rows)):
        return f"the norm of the model ended at {norms[-1]:.3g}, after {norms[0]:.3g} at first"
    return None


def _values(name: str, rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [row[name] for row in rows if row.get(name) is not None]


_NAMES = {"loss": "loss", "train_loss": "training loss", "norm": "norm of the model"}
