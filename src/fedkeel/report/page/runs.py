"""Runs on a page: their columns as compact lists, thinned out where there is too much of them.

A page holds some ninety thousand numbers, six digits each, so that its data stays below a megabyte however
long the runs are. `fedkeel export` writes every number of every round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

from fedkeel.common.columns import VALIDATION, is_accuracy
from fedkeel.report.page.document import ColumnLabel, Number, RunColumn, RunCurves
from fedkeel.report.tables import UNFINISHED, Trial, why_diverged

MOST_NUMBERS = 90_000  # on a page
_FEWEST = 50  # points of a column that is thinned out
_LEFT_OUT = ("round", "stage", "seconds", "bytes_down", "bytes_up", "gradients", "switching/round")
_ABOUT = {
    "train_loss": "Mean loss of the minibatches that the cohort trained on.",
    "divergence": "Mean squared distance of the clients' models from the global one, Δ, over all clients.",
    "divergence/cohort": "Mean squared distance of the cohort's models from the global one.",
    "diversity": "Σ‖D_i‖² / ‖ΣD_i‖² of the clients' moves: 1/n where they agree, larger where they cancel.",
    "drift": "Mean squared distance from the global model over clients and local steps, ξ.",
    "clipped": "Share of the local steps that were clipped.",
    "local_updates": "Σ_k ‖y_k − x‖², mean over clients.",
    "global_update": "‖x_{t+1} − x_t‖²: how far a round moved the model.",
    "losses/participation_gap": "Loss of clients that never take part minus that of those that do.",
    "excess/generalisation": "E_G: test loss minus training loss.",
    "excess/optimisation": "E_O: training loss minus the lowest known, given to the probe or seen so far.",
}
_LABELS = {
    "train_loss": "loss while training",
    "losses/train": "training loss",
    "losses/test": "test loss",
    "losses/gap": "test loss − training loss",
    "losses/participating": "loss of participating clients",
    "losses/held_out": "loss of held-out clients",
    "losses/participation_gap": "participation gap",
    "excess/generalisation": "generalisation error, E_G",
    "excess/optimisation": "optimisation error, E_O",
    "cosine/previous": "cosine with the client's last move",
    "cosine/earlier": "cosine with all earlier moves",
    "clients/accuracy": "accuracy, mean over clients",
    "clients/worst": "accuracy, worst tenth of clients",
    "global_update": "global update",
    "local_updates": "local updates",
    "divergence": "divergence of clients",
    "diversity": "diversity of moves",
    "drift": "drift within a round",
    "clipped": "share of clipped steps",
    "norm": "norm of the model",
    "lr": "local learning rate",
}
_LOGARITHMIC = ("divergence", "drift", "local_updates", "global_update")


class ReportedRun(NamedTuple):
    """A run as a page shows it: its trial, and what is known of it beside its rows.

    `settings` are those of its experiment, as `work.lr`; `clients` has its last model client by client.
    """

    trial: Trial
    manifest: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    clients: Sequence[Mapping[str, Any]] = ()
    directory: str | None = None
    command: str | None = None

    @property
    def name(self) -> str:
        """Its method (or value) and seed."""
        return f"{self.trial.label}, seed {self.trial.seed}"


class PageRuns(NamedTuple):
    """The runs of a page, how their columns are written, and of how many rounds one is shown (1: of each)."""

    curves: tuple[RunCurves, ...]
    labels: dict[str, ColumnLabel]
    thinned: bool

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns that a run has, in the order of the rows."""
        return list(self.labels)


def page_runs(runs: Sequence[ReportedRun], most: int = MOST_NUMBERS) -> PageRuns:
    """Return the runs as a page holds them."""
    names = list(dict.fromkeys(name for run in runs for name in _columns_of(run.trial.rows)))
    known = sum(len(_columns_of(run.trial.rows)) + 3 for run in runs)
    points = max(_FEWEST, most // max(1, known))
    curves = tuple(_curves(index, run, points) for index, run in enumerate(runs))
    thinned = any(len(run.trial.rows) > points for run in runs)
    return PageRuns(curves, {name: column_label(name) for name in names}, thinned)


def column_label(name: str) -> ColumnLabel:
    """Return how a column is written."""
    shown = _LABELS.get(name) or (name[7:] if name.startswith("layers/") else name.replace("_", " "))
    if name.startswith(VALIDATION):
        shown = f"validation {shown.removeprefix('validation ')}"
    percent = is_accuracy(name) or name in ("clients/accuracy", "clients/worst")
    return ColumnLabel(
        label=shown, about=_ABOUT.get(name, ""), percent=percent, log=name.startswith(_LOGARITHMIC)
    )


def column(points: Sequence[tuple[int, Number | None]], most: int) -> RunColumn:
    """Return (round, value) pairs as a column with about that many of them, the last always among them."""
    step = max(1, math.ceil(len(points) / most))
    kept = points[::-1][::step][::-1]  # from the end, so that the last one stays and the steps are even
    rounds, values = [round for round, _ in kept], tuple(short(value) for _, value in kept)
    gaps = {b - a for a, b in pairwise(rounds)}
    if len(gaps) <= 1 and rounds:
        return RunColumn(first=rounds[0], step=gaps.pop() if gaps else 1, values=values)
    return RunColumn(rounds=tuple(rounds), values=values)


def short(value: Number | None) -> Number | None:
    """Return a number with six digits; whole ones keep all of theirs, and what is no number becomes None."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def state_of(trial: Trial) -> Literal["finished", "unfinished", "diverged"]:
    """Return how a run stands."""
    if why_diverged(trial) is not None:
        return "diverged"
    return "unfinished" if trial.problem == UNFINISHED else "finished"


def has_curve(name: str) -> bool:
    """Tell whether a column is worth a curve; costs stand in tables."""
    return name not in _LEFT_OUT and not name.startswith("costs/")


def _columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns that have a number somewhere and are worth a curve."""
    names = dict.fromkeys(
        name for row in (*rows[:1], *rows[-1:], *rows[:: max(1, len(rows) // 20)]) for name in row
    )
    return [
        name
        for name in names
        if has_curve(name)
        and any(_is_number(row.get(name)) for row in rows)
        and not (name == "lr" and len({row.get(name) for row in rows}) == 1)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _curves(index: int, run: ReportedRun, most: int) -> RunCurves:
    rows, trial = run.trial.rows, run.trial
    columns = {
        name: column([(row["round"] + 1, row[name]) for row in rows if _is_number(row.get(name))], most)
        for name in _columns_of(rows)
    }
    totals = {
        "bytes": _totals(row["bytes_down"] + row["bytes_up"] for row in rows),
        "gradients": _totals(row.get("gradients") or 0 for row in rows),
        "seconds": [round(value, 3) for value in _totals(row.get("seconds") or 0.0 for row in rows)],
    }
    axes = {
        name: column([(row["round"] + 1, total) for row, total in zip(rows, found, strict=True)], most)
        for name, found in totals.items()
        if any(found)
    }
    return RunCurves(
        id=run.directory or f"{index}",
        method=trial.label,
        seed=trial.seed,
        state=state_of(trial),
        problem=why_diverged(trial) or trial.problem,
        directory=run.directory,
        done=len(rows),
        planned=run.manifest.get("rounds"),
        columns=columns,
        axes=axes,
    )


def _totals(values: Iterable[Number]) -> list[Number]:
    return list(accumulate(values))
