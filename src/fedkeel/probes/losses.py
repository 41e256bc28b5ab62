"""Losses of the global model: on training, test, participating and held-out data, and client by client."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Count, Number, UnitInterval, frozen
from fedkeel.data.federation import Batch, Federation
from fedkeel.probes.base import Columns, Probe, RoundView, RunView, number
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Record
from fedkeel.tensors.vector import Vector


@frozen
class Losses(Probe):
    """Where the model x is good: losses, the generalisation gap and the participation gap R_u − R_e.

    `losses/train`: over all samples of the clients that may take part; `losses/test`: over the test set;
    `losses/gap` = test − train (FedInit §4.1). With held-out clients also R_e = `losses/participating`, the
    mean over clients of their own mean loss, R_u = `losses/held_out`, the same over held-out clients, and
    `losses/participation_gap` = R_u − R_e (FedSAGD, (2)); None where there are none, as is what needs a test
    set where there is none. Cost: a forward pass over all these samples.
    """

    every: Count = 10

    columns = (
        HistoryColumn("losses/train", "training loss", better="less", panel="generalisation"),
        HistoryColumn("losses/test", "test loss", better="less", panel="generalisation"),
        HistoryColumn("losses/gap", "test loss − training loss", better="less", panel="generalisation"),
        HistoryColumn(
            "losses/participating", "loss of participating clients", better="less", panel="generalisation"
        ),
        HistoryColumn("losses/held_out", "loss of held-out clients", better="less", panel="generalisation"),
        HistoryColumn(
            "losses/participation_gap",
            "participation gap",
            "Loss of clients that never take part minus that of those that do.",
            better="less",
            panel="generalisation",
        ),
    )

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Evaluate the model on every kind of data there is."""
        found: dict[str, float | None] = {"train": train_loss(seen)}
        if seen.federation.test is not None:
            found["test"] = seen.evaluate(seen.x, seen.federation.test)["loss"]
            found["gap"] = _difference(found["test"], found["train"])
        if seen.federation.held_out:
            inside, outside = len(seen.federation), seen.federation.held_out
            found["participating"] = _mean_loss(seen, range(inside))
            found["held_out"] = _mean_loss(seen, range(inside, inside + outside))
            found["participation_gap"] = _difference(found["held_out"], found["participating"])
        return {f"losses/{kind}": loss for kind, loss in found.items()}, state


class BestLoss(NamedTuple):
    """The lowest training loss seen so far."""

    loss: Vector


@frozen
class ExcessRisk(Probe):
    """FedInit's split of the excess risk (§4.1): E_G = test − train loss, E_O = train − best known loss.

    The best known is the lowest that this probe has seen in the run, or `best` where that is lower: give the
    loss of a long run to compare methods. Columns: `excess/generalisation` (None without a test set),
    `excess/optimisation`. Cost: a forward pass over training and test data.
    """

    best: Number | None = None
    every: Count = 10

    columns = (
        HistoryColumn(
            "excess/generalisation",
            "generalisation error, E_G",
            "E_G: test loss minus training loss.",
            better="less",
            panel="generalisation",
            same_as="losses/gap",
        ),
        HistoryColumn(
            "excess/optimisation",
            "optimisation error, E_O",
            "E_O: training loss minus the lowest known, given to the probe or seen so far.",
            better="less",
            panel="generalisation",
        ),
    )

    def begin(self, x0: Vector, layout: Layout) -> Record:
        """Start from the loss that was given."""
        return BestLoss(number(math.inf if self.best is None else self.best))

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Evaluate the model on training and test data."""
        loss = train_loss(seen)
        best = min(loss, float(state.loss))
        test = seen.federation.test
        columns: Columns = {"excess/optimisation": loss - best}
        if test is not None:
            columns["excess/generalisation"] = seen.evaluate(seen.x, test)["loss"] - loss
        return columns, BestLoss(number(best))


@frozen
class ClientAccuracy(Probe):
    """How the model x serves each client: its metric on the client's own data.

    The mean over the clients that may take part, and the mean over the worst tenth (`share`) of them, at
    least one. Columns: `clients/accuracy`, `clients/worst`. Cost: a forward pass over all training data.
    """

    share: UnitInterval = 0.1
    metric: str = "accuracy"
    every: Count = 10

    columns = (
        HistoryColumn(
            "clients/accuracy", "accuracy, mean over clients", percent=True, better="more", panel="clients"
        ),
        HistoryColumn(
            "clients/worst", "accuracy, worst tenth of clients", percent=True, better="more", panel="clients"
        ),
        HistoryColumn("clients/*", panel="clients"),
    )

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Return its columns."""
        return (f"clients/{self.metric}", "clients/worst")

    def check(self, run: RunView) -> None:
        """The task must know the metric."""
        if self.metric not in run.metrics:
            known = ", ".join(run.metrics) or "none"
            raise ConfigError(
                f"clientaccuracy: metric = {self.metric!r}: the task has no such metric (it has: {known})"
            )

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Evaluate the model on each client's data."""
        clients = range(len(seen.federation))
        each = sorted(seen.evaluate(seen.x, data)[self.metric] for data in _each(seen.federation, clients))
        worst = each[: max(1, math.ceil(self.share * len(each) - 1e-9))]
        return {f"clients/{self.metric}": float(np.mean(each)), "clients/worst": float(np.mean(worst))}, state


def train_loss(seen: RoundView) -> float:
    """Return the loss of x over all samples of the clients that may take part."""
    return seen.evaluate(seen.x, seen.federation.everything)["loss"]


def _mean_loss(seen: RoundView, clients: range) -> float:
    return float(np.mean([seen.evaluate(seen.x, data)["loss"] for data in _each(seen.federation, clients)]))


def _each(federation: Federation, clients: range) -> Iterable[Batch]:
    return (federation.samples(client) for client in clients)


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
