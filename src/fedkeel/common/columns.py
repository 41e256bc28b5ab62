"""The columns of a history: those that a run and its probes write themselves, and how scores are shown.

No metric may take the name of one of these. Names with a "/" are of probes (`losses/train`) and of further
models of a method (`loss/gamma`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ATTACK_SUCCESS = "attack_success"  # of a backdoor
RUN_COLUMNS = (
    "round",
    "stage",
    "cohort",
    "loss",
    "train_loss",
    "norm",
    "lr",
    "gradients",
    "bytes_down",
    "bytes_up",
    "seconds",
    "hostile",  # of the cohort, where the run is attacked
    ATTACK_SUCCESS,
)
# only in rows of rounds where it happened: clients that failed, and divergences from which the run went back
SKIPPED, ROLLED_BACK = EVENT_COLUMNS = ("skipped", "rolled_back")
LOST_WORKERS = "lost_workers"  # of a round: workers and machines that were lost, each in a line
STATE_LOST = "state_lost"  # clients whose nodes lost what they remembered; only in rounds with some
RESTARTED = "restarted"  # True where the method began afresh for that
VALIDATION = "validation_"  # begins the columns of validation data, as validation_accuracy
PROBE_COLUMNS = ("global_update", "local_updates", "drift", "clipped", "divergence", "diversity", "epsilon")
COLUMNS = RUN_COLUMNS + EVENT_COLUMNS + PROBE_COLUMNS
_PROBE_KINDS = ("cosine", "losses", "excess", "clients", "switching", "costs", "layers")


class ShownScore(NamedTuple):
    """What a row says of the model, as text: the name of a column and its value."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name} {self.value}"


def shown_score(row: Mapping[str, Any]) -> ShownScore | None:
    """Return what a row says of the model in a word or two; None where it was not evaluated."""
    names = (f"{prefix}{name}" for prefix in ("", VALIDATION) for name in ("accuracy", "loss"))
    found = next((name for name in names if row.get(name) is not None), None)
    return None if found is None else ShownScore(found.replace("_", " "), shown_value(found, row[found]))


def shown_value(column: str, value: float) -> str:
    """Return a value of a column of the history as text, an accuracy in percent."""
    return f"{100 * value:.1f} %" if is_accuracy(column) else f"{value:.4f}"


def shown_events(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Say in plain words what went wrong in a run that went on: nothing where nothing did."""
    told = {"skipped": _shown_skipped(rows), "rolled back": _shown_rollbacks(rows)}
    return {name: text for name, text in told.items() if text}


def _shown_skipped(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say how many clients were skipped, and why most of them."""
    failures = [failure for row in rows for failure in row.get(SKIPPED, ())]
    if not failures:
        return ""
    drawn, rounds = sum(len(row["cohort"]) for row in rows), sum(SKIPPED in row for row in rows)
    [(reason, count)] = Counter(failure["reason"] for failure in failures).most_common(1)
    mostly = reason if count == len(failures) else f"{count} times: {reason}"
    return f"{len(failures)} of {drawn} clients' results, in {rounds} round{'s' * (rounds > 1)} ({mostly})"


def _shown_rollbacks(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say how often a run went back from a divergence, and what became of its steps."""
    factors = [event["factor"] for row in rows for event in row.get(ROLLED_BACK, ())]
    if not factors:
        return ""
    times = "once" if len(factors) == 1 else f"{len(factors)} times"
    return f"{times}; local steps are {math.prod(factors):.3g} of those asked for"


def is_accuracy(column: str) -> bool:
    """Tell whether a column is an accuracy, which is written in percent: of any model, on any data."""
    return column.removeprefix(VALIDATION).startswith("accuracy") or column == ATTACK_SUCCESS


def is_diagnostic(column: str) -> bool:
    """Tell whether a column is of the run itself or of one of fedkeel's probes, and no score of a model."""
    kind = column.partition("/")[0]
    return kind in (*EVENT_COLUMNS, *PROBE_COLUMNS, *_PROBE_KINDS) or (kind in RUN_COLUMNS and kind != "loss")
