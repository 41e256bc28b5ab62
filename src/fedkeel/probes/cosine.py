"""Cosine of a client's moves across its participations (Rethinking §3.2)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.frozen import Count, frozen
from fedkeel.probes.base import ClientView, Columns, Probe, RoundView, number
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Record
from fedkeel.tensors.vector import Vector

_SEED = 20_230  # of the sketch: the same in every run and process
_TINY = 1e-300
_LAST = "cosine/last_round_with"


class MoveNotes(NamedTuple):
    """What a client keeps of its moves.

    The last unit move, the sum of all, their number; the whole moves of chosen rounds, one per row. With
    `each_round` also the unit move of every participation, one per row, and its round (−1: a free row).
    """

    last: Vector
    total: Vector
    seen: Vector
    chosen: Tensor
    units: Tensor
    rounds: Tensor


class Cosines(NamedTuple):
    """A client's cosines, and beside each whether the client has a move to compare with.

    With the move before and with all earlier ones (`has`), with those of chosen rounds (`has_chosen`), with
    that of each earlier round (`has_each`).
    """

    previous: Vector
    earlier: Vector
    has: Vector
    chosen: Vector
    has_chosen: Vector
    each: Vector
    has_each: Vector


@frozen
class Cosine(Probe):
    """cos(D_i now, D_i of earlier participations) and cos(D_i now, D_i of the last), mean over the cohort.

    The mean over all earlier ones is the product with the mean of their unit vectors, so nothing but that is
    kept. Moves of more than `size` numbers are compared on a sketch of that size (each number is added with a
    random sign to a random position): a cosine is then off by about `cosine/error` = 1/√size, less in the
    mean. `exact=(10, 50)` keeps the moves of these rounds whole and compares all later ones with them:
    `cosine/round-10`. `each_round=True` is Rethinking's Figure 1c to the letter, the move of the last round
    against that of each earlier one: the last row's `cosine/last_round_with` lists the mean cosine with the
    rounds 0, 1, …, None where no client of the last cohort took part. Columns: `cosine/previous`,
    `cosine/earlier`, `cosine/error`; None where no client of the cohort took part before. Clients keep two
    sketches, a model for each chosen round, and with `each_round` a sketch for each of their rounds.
    """

    exact: tuple[int, ...] = ()
    size: Count = 4096
    each_round: bool = False
    every: Count = 1

    columns = (
        HistoryColumn("cosine/previous", "cosine with the client's last move", panel="drift"),
        HistoryColumn("cosine/earlier", "cosine with all earlier moves", panel="drift"),
        HistoryColumn("cosine/error", panel="data"),
        HistoryColumn("cosine/round-*", panel="drift"),
        HistoryColumn(_LAST, panel="data"),
    )
    always = True
    at_clients = True
    keeps = True

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Return its columns."""
        chosen = (f"cosine/round-{round}" for round in self.exact)
        last = (_LAST,) if self.each_round else ()
        return ("cosine/previous", "cosine/earlier", "cosine/error", *chosen, *last)

    def begin(self, x0: Vector, layout: Layout) -> Record:
        """Remember how long a model is."""
        return number(len(x0))

    def init_client(self, state: Record) -> Record:
        """Start without moves."""
        d = int(state)
        empty = torch.zeros(min(d, self.size), dtype=torch.float32)
        chosen = torch.zeros((len(self.exact), d if self.exact else 0))
        units, rounds = empty.new_zeros((0, len(empty))), torch.zeros(0, dtype=torch.float64)
        return MoveNotes(empty, empty, number(0), chosen, units, rounds)

    def measure(self, view: ClientView, notes: Record, brief: Record) -> tuple[Record, Record]:
        """Compare the move with those before it, and note it."""
        move = view.move.cpu()
        now = _unit(sketch(move, self.size))
        notes = MoveNotes(*(part.cpu() for part in notes))  # where a resumed run has put them
        has, chosen = float(notes.seen) > 0, notes.chosen
        cosines = Cosines(
            _cosine(now, notes.last) if has else number(0),
            torch.dot(now, notes.total.double()).reshape(1) / notes.seen if has else number(0),
            number(has),
            torch.cat([_cosine(move, one) for one in chosen]) if len(chosen) else number(0),
            (chosen != 0).any(1).double() if len(chosen) else number(0),
            *(_with_each(now, notes, view.round) if self.each_round else (number(0), number(0))),
        )
        if view.round in self.exact:
            chosen = chosen.clone()
            chosen[self.exact.index(view.round)] = move
        short = now.float()
        noted = MoveNotes(short, notes.total + short, notes.seen + 1, chosen, notes.units, notes.rounds)
        return cosines, _with_move(noted, short, view.round) if self.each_round else noted

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Average over the clients that took part before."""
        cosines: Cosines = seen.measures
        columns: Columns = {
            "cosine/previous": _mean(cosines.previous, cosines.has),
            "cosine/earlier": _mean(cosines.earlier, cosines.has),
            "cosine/error": 1 / math.sqrt(self.size) if int(state) > self.size else 0.0,
        }
        for index, round in enumerate(self.exact):
            columns[f"cosine/round-{round}"] = _mean(cosines.chosen[index], cosines.has_chosen[index])
        if self.each_round and seen.round + 1 == seen.run.rounds:
            each = zip(cosines.each, cosines.has_each, strict=True)
            columns[_LAST] = [_mean(total, share) for total, share in each][: seen.round]
        return columns, state


def sketch(vector: Vector, size: int) -> Vector:
    """Return a vector in `size` numbers: inner products are kept up to about 1/√size of the norms."""
    if len(vector) <= size:
        return vector
    positions, signs = _positions(len(vector), size)
    return vector.new_zeros(size).index_add_(0, positions, vector * signs)


@lru_cache(maxsize=4)
def _positions(d: int, size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(_SEED)
    positions = torch.randint(size, (d,), generator=generator)
    return positions, (torch.randint(2, (d,), generator=generator) * 2 - 1).double()


def _with_each(now: Vector, notes: MoveNotes, round: int) -> tuple[Vector, Vector]:
    """Return the cosines with the moves noted of each earlier round, by round, and which there are."""
    cosines, has = (torch.zeros(max(1, round), dtype=torch.float64) for _ in range(2))
    taken = notes.rounds >= 0
    rounds = notes.rounds[taken].long()
    cosines[rounds] = notes.units[taken].double() @ now
    has[rounds] = 1
    return cosines, has


def _with_move(notes: MoveNotes, unit: Vector, round: int) -> MoveNotes:
    """Note a unit move in a free row; rows double when all are taken, so that shapes seldom change."""
    row = int(notes.seen) - 1
    units, rounds = notes.units.clone(), notes.rounds.clone()
    if row == len(units):
        more = max(1, len(units))
        units = torch.cat([units, units.new_zeros((more, units.shape[1]))])
        rounds = torch.cat([rounds, rounds.new_full((more,), -1)])
    units[row], rounds[row] = unit, round
    return notes._replace(units=units, rounds=rounds)


def _mean(total: Tensor, share: Tensor) -> float | None:
    """Return the mean over the clients that count, from the means over all of both."""
    return float(total) / float(share) if float(share) else None


def _unit(vector: Vector) -> Vector:
    unit: Vector = vector / torch.linalg.vector_norm(vector).clamp_min(_TINY)
    return unit


def _cosine(a: Vector, b: Vector) -> Vector:
    return torch.dot(_unit(a.double()), _unit(b.double())).reshape(1)
