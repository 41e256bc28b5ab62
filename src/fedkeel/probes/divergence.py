"""Divergence Δ: how far the clients' last models lie from the global one (FedInit §5.4)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.frozen import Count, frozen
from fedkeel.probes.base import ClientView, Columns, Probe, RoundView, number, squared
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Nothing, Record
from fedkeel.tensors.vector import Vector


class Sums(NamedTuple):
    """Running sums over all clients of u_i = w_i − x⁰ and of ‖u_i‖², in float64; x⁰ is the first model."""

    x0: Vector
    total: Vector
    squares: Vector


class LastModel(NamedTuple):
    """The model with which the client last ended."""

    last: Vector


class Change(NamedTuple):
    """A client's w_i⁺ − w_i and ‖w_i⁺‖² − ‖w_i‖²; over the cohort: its D and ‖D‖²."""

    vector: Vector
    square: Vector


@frozen
class Divergence(Probe):
    """Δ = mean ‖w_i − x‖² after aggregation, w_i the model with which client i last ended (FedInit §5.4).

    `over="all"` takes all clients, with w_i = x⁰ where one never took part, from running sums of w_i − x⁰ and
    its square in float64: O(d) at the server, one model per client in its notes. `over="cohort"` takes this
    round's clients and keeps nothing. Columns: `divergence`, or `divergence/cohort`.
    """

    over: Literal["all", "cohort"] = "all"
    every: Count = 1

    columns = (
        HistoryColumn(
            "divergence",
            "divergence of clients",
            "Mean squared distance of the clients' models from the global one, Δ, over all clients.",
            log=True,
            better="less",
            panel="drift",
        ),
        HistoryColumn(
            "divergence/cohort",
            about="Mean squared distance of the cohort's models from the global one.",
            log=True,
            better="less",
            panel="drift",
        ),
    )
    at_clients = True

    @property
    def always(self) -> bool:  # type: ignore[override]
        """Running sums must see every round."""
        return self.over == "all"

    @property
    def keeps(self) -> bool:  # type: ignore[override]
        """Running sums need each client's last end."""
        return self.over == "all"

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Return its column."""
        return ("divergence" if self.over == "all" else "divergence/cohort",)

    def begin(self, x0: Vector, layout: Layout) -> Record:
        """Start with every client at x⁰."""
        return Sums(x0, torch.zeros_like(x0, dtype=torch.float64), number(0)) if self.keeps else Nothing()

    def init_client(self, state: Record) -> Record:
        """A client that never took part stands at x⁰."""
        return LastModel(state.x0) if self.keeps else Nothing()

    def measure(self, view: ClientView, notes: Record, brief: Record) -> tuple[Record, Record]:
        """Give the change of the client's model, or its move."""
        if not self.keeps:
            return Change(view.move, squared(view.move)), notes
        end, last = view.walk.end.double(), notes.last.double()
        moved = end - last
        return Change(moved, torch.dot(moved, end + last).reshape(1)), LastModel(view.walk.end)

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Combine the sums: mean‖u_i‖² − 2·v·mean u_i + ‖v‖² with v = x − x⁰."""
        change: Change = seen.measures
        if not self.keeps:
            v = (seen.x - seen.down.x).double()
            near = change.square - 2 * torch.dot(v, change.vector) + squared(v)
            return {"divergence/cohort": float(near)}, state
        n = len(seen.clients)
        x0 = state.x0.double()
        total = state.total + n * change.vector
        grown = float(change.square) - 2 * float(torch.dot(x0, change.vector))
        squares = float(state.squares) + n * grown
        v = seen.x.double() - x0
        found = (squares - 2 * float(torch.dot(v, total))) / seen.population + float(squared(v))
        return {"divergence": found}, Sums(state.x0, total, number(squares))
