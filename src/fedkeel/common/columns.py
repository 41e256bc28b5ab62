"""The columns of a history: what is declared of them, and how their values are shown.

A probe declares its own columns; those that a round has anyway stand in a table here. A run's manifest holds
what its probes declare, so a page, a table or a measure knows them wherever it is made. Runs of version 0.1
have no such list: for them `probe_columns.json` has the declarations of fedkeel's own probes, read without
PyTorch (`python -m fedkeel.probes` writes it, a test compares it with the code).

No metric may take the name of a column. Names with a "/" are of probes (`losses/train`) and of further models
of a method (`loss/gamma`).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import frozen

ATTACK_SUCCESS = "attack_success"  # of a backdoor
# only in rows of rounds where it happened: clients that failed, and divergences from which the run went back
SKIPPED, ROLLED_BACK = EVENT_COLUMNS = ("skipped", "rolled_back")
LOST_WORKERS = "lost_workers"  # of a round: workers and machines that were lost, each in a line
STATE_LOST = "state_lost"  # clients whose nodes lost what they remembered; only in rounds with some
RESTARTED = "restarted"  # True where the method began afresh for that
VALIDATION = "validation_"  # begins the columns of validation data, as validation_accuracy
PROBE_COLUMNS_FILE = Path(__file__).with_name("probe_columns.json")

Panel = Literal["curves", "drift", "layers", "generalisation", "clients", "data", "none"]


@frozen
class HistoryColumn:
    """What is declared of a column of the history: how it is written, what it means, where it is drawn.

    A `*` in the name stands for any text: `layers/*` declares the column of every layer, and a `*` in the
    label is that text. Without a label the name serves. `percent` is for shares that are written in per cent,
    `log` for values on a logarithmic axis; `better` says whether more or less of it is better, which a
    measure, as "final of mine", needs to know. `panel` is the part of a page that draws it: the curves, the
    panels on drift (`layers` are apart there), generalisation or clients; `data` is drawn nowhere but is in
    the page's data, `none` has no curve at all. It is not drawn beside the column `same_as`, which has the
    same numbers.
    """

    name: str
    label: str = ""
    about: str = ""
    percent: bool = False
    log: bool = False
    better: Literal["more", "less"] | None = None
    panel: Panel = "curves"
    same_as: str = ""

    @property
    def is_pattern(self) -> bool:
        """Tell whether it declares several columns."""
        return "*" in self.name

    def covers(self, name: str) -> bool:
        """Tell whether it declares the column of that name."""
        begin, star, end = self.name.partition("*")
        if not star:
            return name == self.name
        return len(name) >= len(begin) + len(end) and name.startswith(begin) and name.endswith(end)

    def of(self, name: str) -> HistoryColumn:
        """Return the declaration of one column that it covers, with its label."""
        begin, _, end = self.name.partition("*")
        rest = name[len(begin) : len(name) - len(end)] if self.is_pattern else ""
        return replace(self, name=name, label=self.label.replace("*", rest) or name.replace("_", " "))

    def as_table(self) -> dict[str, Any]:
        """Return it for JSON, without what is at its default."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = HistoryColumn(self.name)
        return {key: value for key, value in told.items() if key == "name" or value != getattr(plain, key)}


# what models are evaluated by; a further model's is drawn with that of the first
SCORES = (
    HistoryColumn("loss", better="less"),
    HistoryColumn("loss/*", better="less", panel="data"),
    HistoryColumn("accuracy", percent=True, better="more"),
    HistoryColumn("accuracy/*", percent=True, better="more", panel="data"),
    HistoryColumn("accuracy*", percent=True, better="more"),
)
# what a round has beside them; seconds, bytes and gradients are in tables and are axes
ROUND = (
    HistoryColumn("round", panel="none"),
    HistoryColumn("stage", panel="none"),
    HistoryColumn("cohort"),
    HistoryColumn(
        "train_loss",
        "loss while training",
        "Mean loss of the minibatches that the cohort trained on.",
        better="less",
    ),
    HistoryColumn("norm", "norm of the model"),
    HistoryColumn("lr", "local learning rate"),
    HistoryColumn("gradients", better="less", panel="none"),
    HistoryColumn("bytes_down", better="less", panel="none"),
    HistoryColumn("bytes_up", better="less", panel="none"),
    HistoryColumn("seconds", better="less", panel="none"),
    HistoryColumn("hostile"),  # of the cohort, where the run is attacked
    HistoryColumn(ATTACK_SUCCESS, percent=True, better="less"),
)
EVENTS = tuple(HistoryColumn(name) for name in EVENT_COLUMNS)
RUN_COLUMNS = ("round", "stage", "cohort", "loss", *(one.name for one in ROUND[3:]))


class KnownColumns:
    """What is declared of the columns of some runs: by their probes, by fedkeel's own, or of every round."""

    def __init__(self, declared: Iterable[HistoryColumn] = ()) -> None:
        self._declared = tuple(declared)
        self._found: dict[str, HistoryColumn | None] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownColumns) and self._declared == other._declared

    def __hash__(self) -> int:
        return hash(self._declared)

    @classmethod
    def of(cls, manifests: Iterable[Mapping[str, Any]]) -> KnownColumns:
        """Return what runs' manifests say; of runs that differ the first is taken."""
        return cls(chain.from_iterable(map(columns_in, manifests)))

    def find(self, name: str) -> HistoryColumn | None:
        """Return the declaration of a column, with its label; None where there is none."""
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def describe(self, name: str) -> HistoryColumn:
        """Return the declaration of a column; of an undeclared one a plain one."""
        return self.find(name) or undeclared(name).of(name)

    def is_diagnostic(self, name: str) -> bool:
        """Tell whether a column is of the run itself or of a probe, and no score of a model."""
        scored = name.startswith(VALIDATION) or any(one.covers(name) for one in SCORES)
        return not scored and self.find(name) is not None

    def rank(self, name: str) -> int:
        """Return where a column stands in a panel: as declared, fedkeel's own probes first."""
        order = [*_of_probes(), *self._declared]
        exact = (index for index, one in enumerate(order) if one.name == name)
        covering = (index for index, one in enumerate(order) if one.covers(name))
        return next(chain(exact, covering), len(order))

    def _look_up(self, name: str) -> HistoryColumn | None:
        if name.startswith(VALIDATION):
            inner = self.describe(name.removeprefix(VALIDATION))
            return replace(inner, name=name, label=f"validation {inner.label}")
        known = [*self._declared, *SCORES, *ROUND, *EVENTS, *_of_probes()]
        exact = (one for one in known if one.name == name)
        covering = (one for one in known if one.covers(name))
        found = next(chain(exact, covering), None)
        return None if found is None else found.of(name)


DECLARED = KnownColumns()  # what is known without a run


def undeclared(name: str) -> HistoryColumn:
    """Return what is taken for a column that nobody declares: a metric of the task's, mostly."""
    return HistoryColumn(name, panel="data" if "/" in name else "curves")


def columns_in(manifest: Mapping[str, Any]) -> Iterator[HistoryColumn]:
    """Yield what a run's manifest says of its probes' columns; what a later version wrote is skipped."""
    listed = manifest.get("columns")
    for table in listed if isinstance(listed, list) else ():
        try:
            yield HistoryColumn(**table)
        except (ConfigError, TypeError):
            continue


@cache
def columns_by_probe() -> dict[str, tuple[HistoryColumn, ...]]:
    """Return what fedkeel's own probes declare, by their names in lower case."""
    table = json.loads(PROBE_COLUMNS_FILE.read_text())
    return {name.lower(): tuple(HistoryColumn(**one) for one in found) for name, found in table.items()}


@cache
def reserved_names() -> tuple[str, ...]:
    """Return the names that no metric may take: those of a round and of fedkeel's own probes."""
    own = (one.name for one in _of_probes() if not one.is_pattern and "/" not in one.name)
    return (*RUN_COLUMNS, *EVENT_COLUMNS, *own)


@cache
def _of_probes() -> tuple[HistoryColumn, ...]:
    return tuple(chain.from_iterable(columns_by_probe().values()))


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


@cache
def is_accuracy(column: str) -> bool:
    """Tell whether a column is an accuracy, which is written in percent: of any model, on any data."""
    name = column.removeprefix(VALIDATION)
    return any(one.percent and one.covers(name) for one in (*SCORES, *ROUND))
