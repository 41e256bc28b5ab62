"""What a round costs: bytes, passes, memory (`fedkeel costs` reads these columns)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.frozen import Count, frozen
from fedkeel.probes.base import Columns, Probe, RoundView
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Record, nbytes
from fedkeel.tensors.vector import Vector

_SUMS = ("bytes", "gradients", "forwards")


class Totals(NamedTuple):
    """Sums since the first round: bytes, gradients, forward passes."""

    values: Vector


@frozen
class Costs(Probe):
    """What the round cost and what the run has cost so far. On by default.

    `costs/bytes`: down and up; `downlink="broadcast"` counts what is sent down once per round instead of once
    per client, as FedSAGD does. `costs/gradients`: passes over minibatches, those of full gradients too.
    `costs/forwards`: forward passes. Each is summed over the run as `costs/total_bytes` and so on.
    `costs/client_memory`: the most bytes that a client of the cohort keeps for the method;
    `costs/server_memory`: the server's. Engines that do not count passes leave those None. The row's
    `seconds` are kept apart: they are not repeatable.
    """

    downlink: Literal["unicast", "broadcast"] = "unicast"
    every: Count = 1

    columns = (HistoryColumn("costs/*", better="less", panel="none"),)
    always = True

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Return its columns."""
        totals = (f"costs/total_{name}" for name in _SUMS)
        return (*(f"costs/{name}" for name in _SUMS), *totals, "costs/client_memory", "costs/server_memory")

    def begin(self, x0: Vector, layout: Layout) -> Record:
        """Nothing is spent yet."""
        return Totals(torch.zeros(len(_SUMS), dtype=torch.float64))

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Count the round."""
        down = seen.row["bytes_down"]
        if self.downlink == "broadcast":
            down //= len(seen.row["cohort"])
        counted = seen.passes is not None
        gradients, forwards = seen.passes or (0, 0)
        spent = [down + seen.row["bytes_up"], gradients, forwards]
        totals = state.values.cpu() + torch.tensor(spent, dtype=torch.float64)
        columns: Columns = {}
        for name, now, total in zip(_SUMS, spent, totals.tolist(), strict=True):
            if counted or name == "bytes":
                columns |= {f"costs/{name}": now, f"costs/total_{name}": int(total)}
        columns["costs/client_memory"] = max(nbytes(memory) for memory in seen.client_states)
        columns["costs/server_memory"] = nbytes(seen.after)
        return columns, Totals(totals)
