"""Alerts: what somebody who looks on should know of a run, in plain words."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

MOST_ALERTS = 200  # of all runs together
_NAMED_CLIENTS = 3  # of one round; of more only the number is said
_SPAN = 5  # rounds in which a loss must not double
_TOLD_FROM = 0.25  # of the first loss
_LOSSES = {"loss": "the loss", "train_loss": "the training loss"}


class Alert(NamedTuple):
    """Something to know of a run: when it was noticed (seconds since 1970), what, and how bad that is."""

    when: float
    text: str
    tone: Literal["", "good", "bad", "unclear"] = "unclear"


class LossWatch:
    """Tells that a loss has doubled in five rounds; again only after it has come down.

    A loss near its end is small and doubles by chance, from cohort to cohort: what is below a quarter of the
    first one is not told.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._recent: deque[float] = deque(maxlen=_SPAN + 1)
        self._least: float | None = None  # what a loss must have to be told
        self._before: float | None = None  # the loss from which it had doubled

    def see(self, value: Any) -> str | None:
        """Look at the loss after another round."""
        if type(value) not in (float, int) or not math.isfinite(value):
            return None
        self._recent.append(value)
        self._least = _TOLD_FROM * value if self._least is None else self._least
        if self._before is not None:
            if value > self._before * 1.5:
                return None
            self._before = None
        oldest = self._recent[0]
        if len(self._recent) == _SPAN + 1 and oldest > 0 and value >= max(2 * oldest, self._least):
            self._before = oldest
            return f"{self.name} has doubled in five rounds, to {value:.4g}"
        return None


class RowAlerts:
    """What is to be said of a run's rounds."""

    def __init__(self) -> None:
        self._losses = {column: LossWatch(name) for column, name in _LOSSES.items()}

    def see(self, row: Mapping[str, Any]) -> list[str]:
        """Return what is to be said of a round; rounds count from 1 there."""
        number, skipped = row["round"] + 1, row.get("skipped")
        found = _skipped(skipped, number) if skipped else []
        for column, watch in self._losses.items():
            text = watch.see(row.get(column))
            if text is not None:
                found.append(f"{text} (round {number})")
        return found


def _skipped(given: Any, number: int) -> list[str]:
    """Say which clients a round did without, and why."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        return []
    clients = [one for one in given if isinstance(one, Mapping) and "client" in one]
    if len(clients) > _NAMED_CLIENTS:
        reasons = list(dict.fromkeys(str(one.get("reason", "no reason given")) for one in clients))
        more = f" and {len(reasons) - 1} other reasons" if len(reasons) > 1 else ""
        return [f"{len(clients)} clients in round {number}: skipped ({reasons[0][:200]}{more})"]
    told = [(one["client"], str(one.get("reason", "no reason given"))[:200]) for one in clients]
    return [f"client {client} in round {number}: skipped ({reason})" for client, reason in told]
