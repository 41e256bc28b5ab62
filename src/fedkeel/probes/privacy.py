"""What a run with private updates has given away so far."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.frozen import Count, frozen
from fedkeel.core.privacy import ORDERS, Mechanism, divergences, epsilon_of
from fedkeel.methods.private import Private, keeps_memories
from fedkeel.probes.base import Columns, Probe, RoundView
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Record
from fedkeel.tensors.vector import Vector


class Spent(NamedTuple):
    """The Rényi divergences of all rounds so far, one for each order."""

    divergences: Vector


@frozen
class PrivacyBudget(Probe):
    """`epsilon`: the ε of all rounds so far for the method's δ. On in every run with `private(…)`.

    None where it is infinite.
    """

    clients: Count
    cohort: Count
    sampling: Literal["fixed", "bernoulli"] = "fixed"
    every: Count = 1

    columns = (HistoryColumn("epsilon", better="less"),)
    always = True

    def begin(self, x0: Vector, layout: Layout) -> Record:
        """Nothing is given away yet."""
        return Spent(torch.zeros(len(ORDERS), dtype=torch.float64))

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Add the round."""
        method = seen.method
        assert isinstance(method, Private)  # the run was checked
        memories = keeps_memories(method, seen.down.x)
        mechanism = Mechanism(method.noise, self.clients, self.cohort, self.sampling, memories)
        spent = state.divergences.cpu() + torch.tensor(divergences(mechanism), dtype=torch.float64)
        found = epsilon_of(spent.tolist(), method.delta)
        return {"epsilon": found if math.isfinite(found) else None}, Spent(spent)
