"""How far models move: the server's step (V2), the clients' walks (V1, ξ), the step layer by layer."""

from __future__ import annotations

from typing import NamedTuple

import torch

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.frozen import Count, frozen
from fedkeel.probes.base import ClientView, Columns, Probe, RoundView
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Record
from fedkeel.tensors.vector import Vector, distance


@frozen
class Update(Probe):
    """The global update, V2 = ‖x_{t+1} − x_t‖² (FedInit, Appendix A). On by default.

    Column: `global_update`. Cost: one pass over the model per round, at the server.
    """

    every: Count = 1

    columns = (
        HistoryColumn(
            "global_update",
            "global update",
            "‖x_{t+1} − x_t‖²: how far a round moved the model.",
            log=True,
            panel="drift",
        ),
    )

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Measure the server's step."""
        return {"global_update": distance(seen.x, seen.x_before) ** 2}, state


class WalkSums(NamedTuple):
    """A client's Σ‖y_k − x‖² and its number of steps."""

    path2: Vector
    steps: Vector


@frozen
class Drift(Probe):
    """The local updates V1 and the drift ξ of the cohort (FedInit, Appendix A; Beyond smoothness, (2)).

    V1 = mean over clients of Σ_k ‖y_k − x‖², ξ = ΣΣ‖y_k − x‖² / Σ steps, both over the points y_0 … y_{K−1}
    that the steps are taken at (a relaxed start counts); x is the broadcast model.
    Columns: `local_updates` (V1), `drift` (ξ). Cost: a pass over the model for every local step.
    """

    every: Count = 1

    columns = (
        HistoryColumn(
            "drift",
            "drift within a round",
            "Mean squared distance from the global model over clients and local steps, ξ.",
            log=True,
            better="less",
            panel="drift",
        ),
        HistoryColumn(
            "local_updates", "local updates", "Σ_k ‖y_k − x‖², mean over clients.", log=True, panel="drift"
        ),
    )
    at_clients = True
    traces = True

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Return its columns."""
        return ("local_updates", "drift")

    def measure(self, view: ClientView, notes: Record, brief: Record) -> tuple[Record, Record]:
        """Give the walk's sum and its number of steps."""
        assert view.path2 is not None
        return WalkSums(view.path2, view.walk.steps.double()), notes

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Average over clients, and over clients and steps."""
        sums: WalkSums = seen.measures
        return {
            "local_updates": float(sums.path2),
            "drift": float(sums.path2 / sums.steps),
        }, state


class ClippedSteps(NamedTuple):
    """How many of a client's steps were clipped, and how many it took."""

    clipped: Vector
    steps: Vector


@frozen
class Clipping(Probe):
    """The share of the cohort's local steps that `Work(clip=…)` shortened.

    Column: `clipped`, from 0 to 1; 0 without a clip. Cost: nothing, steps are counted as they are clipped.
    """

    every: Count = 1

    columns = (
        HistoryColumn(
            "clipped", "share of clipped steps", "Share of the local steps that were clipped.", panel="drift"
        ),
    )
    at_clients = True

    def measure(self, view: ClientView, notes: Record, brief: Record) -> tuple[Record, Record]:
        """Give the counts of the walk."""
        steps = view.walk.steps.double()
        clipped = torch.zeros_like(steps) if view.walk.clipped is None else view.walk.clipped.double()
        return ClippedSteps(clipped, steps), notes

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Divide the sums over the cohort."""
        sums: ClippedSteps = seen.measures
        return {"clipped": float(sums.clipped / sums.steps)}, state


@frozen
class Layers(Probe):
    """The norm of the global update layer by layer, ‖(x_{t+1} − x_t)_layer‖.

    Columns: `layers/NAME` for every parameter tensor. Cost: one pass over the model, at the server.
    """

    every: Count = 1

    columns = (HistoryColumn("layers/*", "*", panel="layers"),)

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Return one column per layer."""
        return tuple(f"layers/{name}" for name in layout.names)

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Measure each layer's part of the step."""
        parts = seen.layout.views(seen.x - seen.x_before)
        return {f"layers/{name}": float(part.double().norm()) for name, part in parts.items()}, state
