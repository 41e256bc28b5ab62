"""How a model does client by client: a table that prints itself, its ends alone where it is long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from fedkeel.common.columns import shown_value
from fedkeel.common.progress import as_lines

ClientRow = Mapping[str, Any]

OWN_TEST, TRAINING = "test", "training"
_FACTS = ("client", "samples", "visits", "evaluated_on", "evaluated")
_SHOWN_WHOLE = 12  # clients; of more the worst and the best are shown
_ENDS = 5


class ClientTable:
    """A row per client: its number, its training samples, in how many rounds it took part, loss and metrics.

    `evaluated_on` is "test" for a client with a test set of its own, else "training", its training data;
    `evaluated` counts those samples.
    """

    def __init__(self, rows: Sequence[ClientRow]) -> None:
        self.rows = rows

    @property
    def score(self) -> str:
        """Return the column that clients are ordered by: the accuracy, else the loss."""
        return "accuracy" if "accuracy" in self.rows[0] else "loss"

    @property
    def worst_first(self) -> list[ClientRow]:
        """Return the rows in order of their score, the worst first."""
        sign = 1 if self.score == "accuracy" else -1
        return sorted(self.rows, key=lambda row: sign * float(row[self.score]))

    @property
    def distribution(self) -> dict[str, float]:
        """Return mean, worst, percentiles and best of the score over clients."""
        values, last = [float(row[self.score]) for row in self.worst_first], len(self.rows) - 1
        low, high = ("10th", "90th") if self.score == "accuracy" else ("90th", "10th")
        return {
            "mean": sum(values) / len(values),
            "worst": values[0],
            f"{low} percentile": values[round(0.1 * last)],
            "median": median(values),
            f"{high} percentile": values[round(0.9 * last)],
            "best": values[-1],
        }

    @property
    def title(self) -> str:
        """Say how many clients there are, and what they were evaluated on."""
        own, all_of_them = sum(row["evaluated_on"] == OWN_TEST for row in self.rows), len(self.rows)
        many = f"{all_of_them:,} client{'s' * (all_of_them != 1)}"
        if own == all_of_them:
            return f"{many}, each on a test set of its own"
        if own == 0:
            return f"{many}, each on its own training data"
        return f"{many}: {own:,} on a test set of their own, the others on their training data"

    @property
    def headings(self) -> list[str]:
        """Return the names of the columns."""
        metrics = [name for name in self.rows[0] if name not in (*_FACTS, "loss")]
        return [*_FACTS[:3], *metrics, "loss", *_FACTS[3:]]

    def cells(self, rows: Sequence[ClientRow]) -> list[list[str]]:
        """Return rows as text."""
        return [[_shown(name, row[name]) for name in self.headings] for row in rows]

    def __repr__(self) -> str:
        spread = ", ".join(f"{name} {shown_value(self.score, x)}" for name, x in self.distribution.items())
        whole = len(self.rows) <= _SHOWN_WHOLE
        rows = self.cells(self.rows if whole else [*self.worst_first[:_ENDS], *self.worst_first[-_ENDS:]])
        if not whole:
            rows.insert(_ENDS, ["…"] * len(self.headings))
        headings = [name.replace("_", " ") for name in self.headings]
        return f"{self.title}\n{self.score}: {spread}\n\n{as_lines(headings, rows)}"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def _shown(name: str, value: Any) -> str:
    return str(value) if name in _FACTS else shown_value(name, float(value))
