"""Cosine of a client's moves across its participations (Rethinking §3.2)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedkeel.frozen import Count, frozen
from fedkeel.layout import Layout
from fedkeel.probes.base import ClientView, Columns, Probe, RoundView, number
from fedkeel.records import Record
from fedkeel.vector import Vector

_SEED = 20_230  # of the sketch: the same in every run and process
_TINY = 1e-300


class Note(NamedTuple):
    """A client's last unit move, the sum of all, their number; the whole moves of chosen rounds as rows."""

    last: Vector
    total: Vector
    seen: Vector
    marks: Tensor


class Alike(NamedTuple):
    """Cosines with the move before, with all earlier ones, and whether there are any; with chosen rounds'."""

    previous: Vector
    earlier: Vector
    has: Vector
    marks: Vector
    marked: Vector


@frozen
class Cosine(Probe):
    """cos(D_i now, D_i of earlier participations) and cos(D_i now, D_i of the last), mean over the cohort.

    The mean over all earlier ones is the product with the mean of their unit vectors, so nothing but that is
    kept. Moves of more than `size` numbers are compared on a sketch of that size (each number is added with a
    random sign to a random place): a cosine is then off by about `cosine/error` = 1/√size, less in the mean.
    `exact=(10, 50)` keeps the moves of these rounds whole and compares all later ones with them:
    `cosine/round-10`. Columns: `cosine/previous`, `cosine/earlier`, `cosine/error`; None where no client of
    the cohort took part before. Clients keep two sketches and a model for each chosen round.
    """

    exact: tuple[int, ...] = ()
    size: Count = 4096
    every: Count = 1

    always = True
    at_clients = True
    keeps = True

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Return its columns."""
        marks = (f"cosine/round-{round}" for round in self.exact)
        return ("cosine/previous", "cosine/earlier", "cosine/error", *marks)

    def begin(self, x0: Vector, layout: Layout) -> Record:
        """Remember how long a model is."""
        return number(len(x0))

    def enlist(self, state: Record) -> Record:
        """Start without moves."""
        d = int(state)
        empty = torch.zeros(min(d, self.size), dtype=torch.float32)
        return Note(empty, empty, number(0), torch.zeros((len(self.exact), d if self.exact else 0)))

    def measure(self, view: ClientView, notes: Record, brief: Record) -> tuple[Record, Record]:
        """Compare the move with those before it, and note it."""
        move = view.move.cpu()
        now = _unit(sketch(move, self.size))
        notes = Note(*(part.cpu() for part in notes))  # where a resumed run has put them
        has = float(notes.seen) > 0
        marks = notes.marks
        alike = Alike(
            _cosine(now, notes.last) if has else number(0),
            torch.dot(now, notes.total.double()).reshape(1) / notes.seen if has else number(0),
            number(has),
            torch.cat([_cosine(move, mark) for mark in marks]) if len(marks) else number(0),
            (marks != 0).any(1).double() if len(marks) else number(0),
        )
        if view.round in self.exact:
            marks = marks.clone()
            marks[self.exact.index(view.round)] = move
        short = now.float()
        return alike, Note(short, notes.total + short, notes.seen + 1, marks)

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Average over the clients that took part before."""
        alike: Alike = seen.measures
        share, d = float(alike.has), int(state)
        columns: Columns = {
            "cosine/previous": float(alike.previous) / share if share else None,
            "cosine/earlier": float(alike.earlier) / share if share else None,
            "cosine/error": 1 / math.sqrt(self.size) if d > self.size else 0.0,
        }
        for place, round in enumerate(self.exact):
            marked = float(alike.marked[place])
            columns[f"cosine/round-{round}"] = float(alike.marks[place]) / marked if marked else None
        return columns, state


def sketch(vector: Vector, size: int) -> Vector:
    """Return a vector in `size` numbers: inner products are kept up to about 1/√size of the norms."""
    if len(vector) <= size:
        return vector
    places, signs = _places(len(vector), size)
    return vector.new_zeros(size).index_add_(0, places, vector * signs)


@lru_cache(maxsize=4)
def _places(d: int, size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(_SEED)
    places = torch.randint(size, (d,), generator=generator)
    return places, (torch.randint(2, (d,), generator=generator) * 2 - 1).double()


def _unit(vector: Vector) -> Vector:
    unit: Vector = vector / torch.linalg.vector_norm(vector).clamp_min(_TINY)
    return unit


def _cosine(a: Vector, b: Vector) -> Vector:
    return torch.dot(_unit(a.double()), _unit(b.double())).reshape(1)
