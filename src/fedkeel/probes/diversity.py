"""Diversity Σ‖v_i‖² / ‖Σv_i‖² of the clients' moves or memories (Rethinking, (1) and A.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.common.frozen import Count, frozen
from fedkeel.core.algorithm import Algorithm
from fedkeel.probes.base import ClientView, Columns, Probe, RoundView, RunView, number, squared
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Nothing, Record, leaves
from fedkeel.tensors.vector import Vector

MOVES = "moves"


class Moved(NamedTuple):
    """A client's D and ‖D‖²."""

    move: Vector
    square: Vector


class Square(NamedTuple):
    """A client's change of ‖h_i‖²; in the state: the running Σ‖h_i‖² over all clients."""

    value: Vector


@frozen
class Diversity(Probe):
    """Σ‖D_i‖² / ‖ΣD_i‖² over the cohort's moves: 1/N where all agree, large where they cancel.

    `of="h_i"` (FedDyn), `of="c_i"` (SCAFFOLD) is the same over all client states of that name. The server
    keeps their mean, so Σh_i = C·h and only the change of ‖h_i‖² travels; this needs uniform weights.
    Columns: `diversity`, or `diversity/h_i`. Cost: one pass over the model per client and round.
    """

    of: str = MOVES
    every: Count = 1

    columns = (
        HistoryColumn(
            "diversity",
            "diversity of moves",
            "Σ‖D_i‖² / ‖ΣD_i‖² of the clients' moves: 1/n where they agree, larger where they cancel.",
            better="less",
            panel="drift",
        ),
        HistoryColumn("diversity/*", better="less", panel="drift"),
    )
    at_clients = True

    @property
    def always(self) -> bool:  # type: ignore[override]
        """A running sum must see every round."""
        return self.of != MOVES

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Return its column."""
        return ("diversity" if self.of == MOVES else f"diversity/{self.of}",)

    def check(self, run: RunView) -> None:
        """The memory must exist in some stage, with its mean at the server, and weights be equal."""
        if self.of == MOVES:
            return
        x = torch.zeros(1)
        if not any(_has(method, self.of, x) for method in run.methods):
            known = {MOVES} | {n for m in run.methods for n in _names(m.init_client(x)) if _has(m, n, x)}
            raise ConfigError(
                f"diversity(of={self.of!r}): no client of {_shown(run.methods)} keeps that state with its "
                f"mean at the server; {did_you_mean(self.of, known)}"
            )
        if not run.uniform:
            raise ConfigError(
                f"diversity(of={self.of!r}) needs weighting='uniform': Σ{self.of} is C times it"
            )

    def begin(self, x0: Vector, layout: Layout) -> Record:
        """All memories are zero at first."""
        return Nothing() if self.of == MOVES else Square(number(0))

    def renew(self, state: Record) -> Record:
        """Memories start from zero again."""
        return Nothing() if self.of == MOVES else Square(number(0))

    def measure(self, view: ClientView, notes: Record, brief: Record) -> tuple[Record, Record]:
        """Give the move, or the change of the memory's square."""
        if self.of == MOVES:
            move = view.move
            return Moved(move, squared(move)), notes
        before, after = _leaf(view.before, self.of), _leaf(view.after, self.of)
        if before is None or after is None:
            return Square(number(0)), notes
        return Square(squared(after) - squared(before)), notes

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Divide the sum of squares by the square of the sum."""
        (name,) = self.names(seen.layout)
        if self.of == MOVES:
            square, n = squared(seen.measures.move), len(seen.clients)
            return {name: _ratio(float(seen.measures.square), n * float(square))}, state
        total = float(state.value) + len(seen.clients) * float(seen.measures.value)
        mean = _leaf(seen.after, self.of.removesuffix("_i"))
        if mean is None:
            return {name: None}, Square(number(total))
        whole = seen.population**2 * float(squared(mean))
        return {name: _ratio(total, whole)}, Square(number(total))


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0 else None


def _leaf(record: Record, name: str) -> Vector | None:
    """Return the tensor of that name, however deep wrappers have put it."""
    return next((t for full, t in leaves(record) if full.rpartition(".")[2] == name), None)


def _names(record: Record) -> list[str]:
    return [full.rpartition(".")[2] for full, _ in leaves(record)]


def _has(method: Algorithm, name: str, x: Vector) -> bool:
    kept = name in _names(method.init_client(x))
    return kept and name.removesuffix("_i") != name and name.removesuffix("_i") in _names(method.init(x))


def _shown(methods: Sequence[Algorithm]) -> str:
    return ", ".join(repr(method) for method in methods)
