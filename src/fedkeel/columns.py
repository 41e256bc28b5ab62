"""The columns of a history: those that a run and its probes write themselves, and how scores are shown.

No metric may take the name of one of these. Names with a "/" are of probes (`losses/train`) and of further
models of a method (`loss/gamma`).
"""

from __future__ import annotations

from collections.abc import Mapping
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
LEFT_OUT = "left_out"  # clients that failed in a round, with the reasons; only in rounds where there are some
LOST_WORKERS = "lost_workers"  # of a round: workers and machines that were lost, each in a line
VALIDATION = "validation_"  # begins the columns of validation data, as validation_accuracy
PROBE_COLUMNS = ("global_update", "local_updates", "drift", "divergence", "diversity", "epsilon")
COLUMNS = RUN_COLUMNS + PROBE_COLUMNS
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


def is_accuracy(column: str) -> bool:
    """Tell whether a column is an accuracy, which is written in percent: of any model, on any data."""
    return column.removeprefix(VALIDATION).startswith("accuracy") or column == ATTACK_SUCCESS


def is_diagnostic(column: str) -> bool:
    """Tell whether a column is of the run itself or of one of fedkeel's probes, and no score of a model."""
    kind = column.partition("/")[0]
    return kind in (*PROBE_COLUMNS, *_PROBE_KINDS) or (kind in RUN_COLUMNS and kind != "loss")
