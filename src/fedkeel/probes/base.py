"""What a probe is, and what it is shown.

A probe is a frozen value. It may have a client part, computed where the client is and averaged over the
cohort with equal weights whatever the method's own weights or reducer are; a server part, which turns that
mean and the server's states into columns of the round's row; state between rounds; and notes that each client
keeps. All of it lies in the run's own checkpoints, so a resumed run reports the same numbers to the bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.older import refuse_old_functions
from fedkeel.core.algorithm import Algorithm, Walk, model_of
from fedkeel.core.oracle import Passes
from fedkeel.data.federation import Batch, Federation
from fedkeel.data.samples import Samples
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Nothing, Record
from fedkeel.tensors.vector import Vector

Columns = dict[str, Any]


class ClientView(NamedTuple):
    """A client's round, as the client part of a probe sees it.

    `x` is the broadcast model, `before` and `after` the method's memory, `path2` the sum of ‖y_k − x‖² over
    the points that the steps were taken at (None where no probe traces), `gradient` the client's full
    gradient at any vector.
    """

    client: int
    round: int
    x: Vector
    walk: Walk
    down: Record
    before: Record
    after: Record
    up: Record
    path2: Vector | None
    gradient: Callable[[Vector], Vector]

    @property
    def move(self) -> Vector:
        """Return D = end − x in float64."""
        return (self.walk.end - self.x).double()


class RunView(NamedTuple):
    """What a probe knows of its run before the first round."""

    rounds: int
    methods: Sequence[Algorithm]
    federation: Federation
    metrics: Sequence[str]
    layout: Layout
    uniform: bool


class RoundView(NamedTuple):
    """A finished round, as the server part of a probe sees it.

    `before` and `after` are the server's states, `measures` is the cohort's mean of what the probe's client
    part gave, `client_states` are the method's, by drawn position; `row` holds what the round has reported
    so far; `evaluate` gives the loss and the metrics of a vector on samples.
    """

    run: RunView
    round: int
    method: Algorithm
    clients: Sequence[int]
    down: Record
    before: Record
    after: Record
    measures: Record
    client_states: Sequence[Record]
    passes: Passes | None
    row: Mapping[str, Any]
    evaluate: Callable[[Vector, Samples | Batch], dict[str, float]]

    @property
    def x(self) -> Vector:
        """Return the model after the round."""
        return model_of(self.method, self.after)

    @property
    def x_before(self) -> Vector:
        """Return the model before the round."""
        return model_of(self.method, self.before)

    @property
    def federation(self) -> Federation:
        """Return the clients' data."""
        return self.run.federation

    @property
    def layout(self) -> Layout:
        """Return the layout of the model's vector."""
        return self.run.layout

    @property
    def population(self) -> int:
        """Return the number of clients that can be drawn."""
        return len(self.run.federation)


class Probe(ABC):
    """Base of all probes: its columns, `report`, and parts that do nothing by default; `every` is the period.

    `columns` declares what it reports: how pages and tables write it, and where they draw it.
    `always`: it must see every round, whatever its period (running sums). `at_clients`: it has a client part.
    `traces`: it asks the walk for `path2`. `keeps`: clients keep notes for it.
    """

    every: int

    columns: ClassVar[tuple[HistoryColumn, ...]] = ()
    always: ClassVar[bool] = False
    at_clients: ClassVar[bool] = False
    traces: ClassVar[bool] = False
    keeps: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_old_functions(cls)

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Return the columns it reports, by default all that it declares; None in rounds that it leaves out.

        A probe whose columns depend on its settings, or on the model's layers, says here which they are.
        """
        return tuple(column.name for column in self.columns if not column.is_pattern)

    def check(self, run: RunView) -> None:  # noqa: B027  most probes work in every run
        """Raise ConfigError where it cannot work in this run."""

    def due(self, round: int, rounds: int) -> bool:
        """Tell whether it reports after a round (counted from 0): every so many, and after the last."""
        return (round + 1) % self.every == 0 or round + 1 == rounds

    def begin(self, x0: Vector, layout: Layout) -> Record:
        """Return its state before the first round."""
        return Nothing()

    def renew(self, state: Record) -> Record:
        """Return its state where a new stage begins and the client states start afresh."""
        return state

    def brief(self, state: Record) -> Record:
        """Return what its client part is told in a round."""
        return None

    def init_client(self, state: Record) -> Record:
        """Return the notes of a client that never took part."""
        return Nothing()

    def measure(self, view: ClientView, notes: Record, brief: Record) -> tuple[Record, Record]:
        """Return a record of float64 tensors to be averaged over the cohort, and the client's new notes."""
        return Nothing(), notes

    @abstractmethod
    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Return the round's columns and the next state."""


def number(value: float) -> Vector:
    """Return a number as a measure or a part of a state."""
    return torch.tensor([float(value)], dtype=torch.float64)


def squared(vector: Vector) -> Vector:
    """Return ‖v‖² in float64, shape (1,)."""
    wide = vector.double()
    return torch.dot(wide, wide).reshape(1)
