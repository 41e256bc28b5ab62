"""What a table or figure claims, as statements about its cells that can be checked.

A claim is made of contrasts: sums of cells with weights that must lie above a threshold, as "FedInit minus
FedAvg above 0 in every column". Cells are taken so that more is better: rounds to a target, losses and
diversities count with the opposite sign. The same claims are read off the paper's own numbers, where it
prints some, and off our runs (`fedkeel.papers.reproduce.judging`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

# The similarity numbers of a run (fedkeel.papers.reproduce.similarity), and why one decides a claim.
EXPOSURE, RELAXATION, PROXIMAL, DECAY, CLIENTS, WALK, SAMPLES, NOTHING = (
    "exposure",
    "relaxation",
    "proximal",
    "decay",
    "clients",
    "walk",
    "samples",
    "nothing",
)
SIMILARITY = MappingProxyType(
    {
        EXPOSURE: "FedDyn regularises as far as its clients' memories are renewed, Σ p·K·α·η",
        RELAXATION: "a relaxed start acts as a server momentum of strength β·C/N",
        PROXIMAL: "a proximal term holds a client by coefficient·η·K in a round",
        DECAY: "FedSAGD's decay shrinks a client by μ·η·K in a round",
        CLIENTS: "it compares numbers of clients",
        WALK: "a level of accuracy needs as long a way as the paper's, Σ K·η",
        SAMPLES: "a level of accuracy needs as many samples per parameter as the paper's",
        NOTHING: "no number that follows from the settings: it is judged as it comes out at this scale",
    }
)
LEVEL = (WALK, SAMPLES)  # claims about how high an accuracy is, or with a margin in points of accuracy


class CellKey(NamedTuple):
    """A cell of a recipe's tables, by row and heading."""

    row: str
    heading: str


class Contrast(NamedTuple):
    """A weighted sum of cells that must lie above a threshold, in the units of the table.

    `oriented`: cells are taken so that more is better; else as the table shows them.
    """

    terms: tuple[tuple[float, CellKey], ...]
    above: float = 0.0
    oriented: bool = True

    @property
    def cells(self) -> list[CellKey]:
        """The cells it is made of."""
        return [cell for _, cell in self.terms]

    def __str__(self) -> str:
        parts = []
        headings = {cell.heading for cell in self.cells}
        rows = {cell.row for cell in self.cells}
        for weight, cell in self.terms:
            name = cell.row if len(headings) == 1 else cell.heading if len(rows) == 1 else " ".join(cell)
            parts.append(f"{'−' if weight < 0 else '+'} {name}")
        where = (
            f", {self.terms[0][1].heading}"
            if len(headings) == 1
            else f", {self.terms[0][1].row}"
            if len(rows) == 1
            else ""
        )
        return " ".join(parts).removeprefix("+ ") + where


@dataclass(frozen=True)
class Claim(ABC):
    """A statement of the paper about a table or figure, in words and as contrasts.

    `decided_by` names the similarity numbers without which our runs say nothing about it; empty: those of its
    recipe. `baselines` has pairs of columns, with a treatment and without it, where the claim is about the
    treatment: a method that diverges in both says nothing of it.
    """

    text: str
    decided_by: tuple[str, ...] = field(default=(), kw_only=True)
    baselines: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    @abstractmethod
    def alternatives(self, cells: set[CellKey]) -> list[list[Contrast]]:
        """Return sets of contrasts, one of which must hold as a whole; of the cells that there are."""

    @abstractmethod
    def named(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the rows and the headings that it names."""

    def baseline(self, cell: CellKey) -> CellKey | None:
        """Return the same cell without the treatment; None where the claim is about none."""
        without = dict(self.baselines).get(cell.heading)
        return None if without is None else CellKey(cell.row, without)

    def check(self, recipe: str, headings: set[str], rows: set[str], decided_by: tuple[str, ...]) -> None:
        """Refuse a claim about rows or columns that the recipe does not have, or that nothing decides."""
        decisive = self.decided_by or decided_by
        if not decisive or not set(decisive) <= set(SIMILARITY):
            raise ValueError(f"{recipe}: {self.text!r}: decided by {decisive}: name some of {[*SIMILARITY]}")
        for names, known in zip(self.named(), (rows, headings), strict=True):
            unknown = sorted(set(names) - known)
            if unknown:
                raise ValueError(f"{recipe}: the claim {self.text!r} names {unknown}, known are {known}")


@dataclass(frozen=True)
class Better(Claim):
    """Each of `rows` is better than each of `than` by more than `by`; `than=()`: than all other rows.

    In every one of `columns`; `()`: in all of them.
    """

    rows: tuple[str, ...]
    than: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    by: float = 0.0

    def alternatives(self, cells: set[CellKey]) -> list[list[Contrast]]:
        """Return one set: every pair in every column."""
        headings = self.columns or tuple(dict.fromkeys(cell.heading for cell in sorted(cells)))
        others = self.than or tuple(dict.fromkeys(cell.row for cell in sorted(cells)))
        found = [
            Contrast(((1.0, CellKey(row, heading)), (-1.0, CellKey(other, heading))), self.by)
            for heading in headings
            for row in self.rows
            for other in others
            if other != row and (self.than or other not in self.rows)
        ]
        return [[one for one in found if cells.issuperset(one.cells)]]

    def named(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the rows and the headings that it names."""
        return (*self.rows, *self.than), self.columns


@dataclass(frozen=True)
class Similar(Claim):
    """Each of `rows` is within `within` of each of `to`, on both sides, in every one of `columns`."""

    rows: tuple[str, ...]
    to: tuple[str, ...]
    within: float
    columns: tuple[str, ...] = ()

    def alternatives(self, cells: set[CellKey]) -> list[list[Contrast]]:
        """Return one set: not better by more than the margin, and not worse."""
        first = Better("", self.rows, self.to, self.columns, -self.within).alternatives(cells)[0]
        second = Better("", self.to, self.rows, self.columns, -self.within).alternatives(cells)[0]
        return [[*first, *second]]

    def named(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the rows and the headings that it names."""
        return (*self.rows, *self.to), self.columns


@dataclass(frozen=True)
class Ordered(Claim):
    """Each of `rows` is better than the next, in every one of `columns`."""

    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def alternatives(self, cells: set[CellKey]) -> list[list[Contrast]]:
        """Return one set: neighbours among the rows that there are, in every column."""
        headings = self.columns or tuple(dict.fromkeys(cell.heading for cell in sorted(cells)))
        found = []
        for heading in headings:
            there = [CellKey(row, heading) for row in self.rows if CellKey(row, heading) in cells]
            found += [Contrast(((1.0, one), (-1.0, other))) for one, other in pairwise(there)]
        return [found]

    def named(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the rows and the headings that it names."""
        return self.rows, self.columns


@dataclass(frozen=True)
class Peaks(Claim):
    """Some row between the first and the last of `rows` is better than both, in each of `columns`."""

    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def alternatives(self, cells: set[CellKey]) -> list[list[Contrast]]:
        """Return a set for each inner row: better than the first and than the last row that there are."""
        headings = self.columns or tuple(dict.fromkeys(cell.heading for cell in sorted(cells)))
        rows = [row for row in self.rows if all(CellKey(row, heading) in cells for heading in headings)]
        if len(rows) < 3:
            return [[]]
        return [
            [
                Contrast(((1.0, CellKey(row, heading)), (-1.0, CellKey(end, heading))))
                for heading in headings
                for end in (rows[0], rows[-1])
            ]
            for row in rows[1:-1]
        ]

    def named(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the rows and the headings that it names."""
        return self.rows, self.columns


@dataclass(frozen=True)
class BetterColumn(Claim):
    """In each of `rows`, each of `columns` is better than the next one by more than `by`."""

    columns: tuple[str, ...]
    rows: tuple[str, ...] = ()
    by: float = 0.0

    def alternatives(self, cells: set[CellKey]) -> list[list[Contrast]]:
        """Return one set: neighbouring columns, in every row."""
        rows = self.rows or tuple(dict.fromkeys(cell.row for cell in sorted(cells)))
        found = [
            Contrast(((1.0, CellKey(row, one)), (-1.0, CellKey(row, other))), self.by)
            for row in rows
            for one, other in pairwise(self.columns)
        ]
        return [[one for one in found if cells.issuperset(one.cells)]]

    def named(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the rows and the headings that it names."""
        return self.rows, self.columns


@dataclass(frozen=True)
class BetterInPairs(Claim):
    """In each of `rows` and each pair of columns, the first is better than the second by more than `by`."""

    pairs: tuple[tuple[str, str], ...]
    rows: tuple[str, ...] = ()
    by: float = 0.0

    def alternatives(self, cells: set[CellKey]) -> list[list[Contrast]]:
        """Return one set: every pair that there is, in every row."""
        made = [BetterColumn("", pair, self.rows, self.by).alternatives(cells)[0] for pair in self.pairs]
        return [[contrast for found in made for contrast in found]]

    def named(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the rows and the headings that it names."""
        return self.rows, (heading for pair in self.pairs for heading in pair)


@dataclass(frozen=True)
class SmallerDrop(Claim):
    """From column `start` to column `end`, each of `rows` loses less than each of `than`."""

    rows: tuple[str, ...]
    than: tuple[str, ...]
    start: str
    end: str

    def alternatives(self, cells: set[CellKey]) -> list[list[Contrast]]:
        """Return one set: a difference of two differences for every pair."""
        found = [
            Contrast(
                (
                    (1.0, CellKey(row, self.end)),
                    (-1.0, CellKey(row, self.start)),
                    (-1.0, CellKey(other, self.end)),
                    (1.0, CellKey(other, self.start)),
                )
            )
            for row in self.rows
            for other in self.than
        ]
        return [[one for one in found if cells.issuperset(one.cells)]]

    def named(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the rows and the headings that it names."""
        return (*self.rows, *self.than), (self.start, self.end)


@dataclass(frozen=True)
class Between(Claim):
    """The number of each of `rows` in `column` lies between `low` and `high`, as the table shows it."""

    rows: tuple[str, ...]
    column: str
    low: float
    high: float

    def alternatives(self, cells: set[CellKey]) -> list[list[Contrast]]:
        """Return one set: above the one end and below the other; signs are those of the table."""
        found = [CellKey(row, self.column) for row in self.rows]
        there = [cell for cell in found if cell in cells]
        lows = [Contrast(((1.0, cell),), self.low, oriented=False) for cell in there]
        highs = [Contrast(((-1.0, cell),), -self.high, oriented=False) for cell in there]
        return [[one for one in (*lows, *highs) if math.isfinite(one.above)]]

    def named(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the rows and the headings that it names."""
        return self.rows, (self.column,)


def better(
    text: str,
    rows: str | Sequence[str],
    than: str | Sequence[str] = (),
    *columns: str,
    by: float = 0.0,
    decided_by: tuple[str, ...] = (),
    baselines: tuple[tuple[str, str], ...] = (),
) -> Better:
    """Return `Better` from single rows or several."""
    sides = _several(rows), _several(than)
    return Better(text, *sides, columns, by, decided_by=decided_by, baselines=baselines)


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
