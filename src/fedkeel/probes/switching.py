"""When to leave FedDyn for FedAvg (Rethinking, Proposition 1): a probe that reports, a rule that acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedkeel.common.columns import HistoryColumn
from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Count, NonNegative, frozen
from fedkeel.core.algorithm import Algorithm
from fedkeel.probes.base import ClientView, Columns, Probe, RoundView, RunView, number, squared
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import Nothing, Record, leaves
from fedkeel.tensors.vector import Vector
from fedkeel.theory.rethinking import eta

SERVER = "server"


class SwitchingState(NamedTuple):
    """T; Σ_i Σ_{t<T} c_i^t, Σ_i c_i^T and the number of clients known so far; the switch's round; the stage.

    The round of the switch is −1 while there is none. For `reference="server"` there is one c, ‖h^t‖².
    `optimum` is the model that the gradients are compared with, `start` the first model of the stage (empty
    until known).
    """

    values: Vector
    optimum: Vector
    start: Vector


class Reference(NamedTuple):
    """What a client is told: the model to compare with, the stage's first model and its number."""

    optimum: Vector
    start: Vector
    stage: Vector


class ClientGap(NamedTuple):
    """A client's c_i = ‖∇L_i(w_i) − ∇L_i(θ*)‖², and the stage it was measured in."""

    value: Vector
    stage: Vector


class GapChange(NamedTuple):
    """The change of c_i; for a client new in the stage also 1 and its c_i at the stage's first model."""

    value: Vector
    new: Vector
    first: Vector


@frozen
class Switching(Probe):
    """Proposition 1: FedDyn stops paying at the first T with T·η·(C_T − mean C_0..C_{T−1}) ≥ ζ.

    C_t is the mean over clients of c_i = ‖∇L_i(θ_i) − ∇L_i(θ*)‖² and needs the optimum.
    `reference="server"` takes ‖h^t‖² in its place (the proof uses no more than ‖h‖² ≤ C_t), so C_0 = 0.
    `reference="model.safetensors"` takes full gradients against that model, at each client's last end, and at
    the stage's first model before its first turn. All C_t of a sum, C_0 too, are over the clients that took
    part so far; a client's first turn also measures what it was before. η = 1/(2α) + L/(2α²)
    with FedDyn's α. Without `zeta` it only reports: κ_0 > 0 needs α > 26.9·L, which α in use never meet, so
    the theory gives no ζ and the number is yours to choose. ‖h‖² rises at first: rounds T ≤ `warm_up` never
    switch. Columns: `switching/C`, `switching/D` (D_T, with ζ only), `switching/gain` (the left side) and
    `switching/round` (the first T that meets it, once met). None in stages without h.
    """

    zeta: NonNegative | None = None
    warm_up: int = 0
    L: NonNegative = 0.0
    reference: str = SERVER
    every: Count = 1

    columns = (
        HistoryColumn("switching/C", panel="drift"),
        HistoryColumn("switching/D", panel="drift"),
        HistoryColumn("switching/gain", panel="drift"),
        HistoryColumn("switching/round", panel="none"),
    )
    always = True

    def __post_init__(self) -> None:
        if self.warm_up < 0:
            raise ConfigError(f"Switching: warm_up = {self.warm_up}: give a number of rounds from 0 on")

    @property
    def at_clients(self) -> bool:  # type: ignore[override]
        """Gradients are taken where the data is."""
        return self.reference != SERVER

    @property
    def keeps(self) -> bool:  # type: ignore[override]
        """Each client notes its own gap."""
        return self.reference != SERVER

    def check(self, run: RunView) -> None:
        """Some stage must be FedDyn, and the reference must fit the model."""
        if not any(_alpha(method) for method in run.methods):
            raise ConfigError("switching: no stage keeps FedDyn's h: use it with FedDyn, or leave it out")
        if self.reference != SERVER:
            _load(self.reference, run.layout)

    def begin(self, x0: Vector, layout: Layout) -> Record:
        """Start at T = 0 with ‖h^0‖² = 0, or with no client known."""
        known = self.reference != SERVER
        optimum = _load(self.reference, layout).to(x0) if known else x0[:0]
        return SwitchingState(_fresh(0), optimum, x0 if known else x0[:0])

    def renew(self, state: Record) -> Record:
        """A new stage has a curve and a first model of its own."""
        return SwitchingState(_fresh(float(state.values[-1]) + 1), state.optimum, state.optimum[:0])

    def brief(self, state: Record) -> Record:
        """Tell clients the reference."""
        if self.reference == SERVER:
            return None
        return Reference(state.optimum, state.start, state.values[-1:])

    def init_client(self, state: Record) -> Record:
        """A client's gap is not known at first."""
        return Nothing() if self.reference == SERVER else ClientGap(number(0), number(-1))

    def measure(self, view: ClientView, notes: Record, brief: Record) -> tuple[Record, Record]:
        """Give the change of the client's gap, and in its first turn the gap at the stage's first model."""
        best = view.gradient(brief.optimum)
        gap = squared(view.gradient(view.walk.end) - best)
        kept = ClientGap(gap, brief.stage)
        if float(notes.stage) == float(brief.stage):
            return GapChange(gap - notes.value, number(0), number(0)), kept
        start = brief.start if brief.start.numel() else view.x
        return GapChange(gap, number(1), squared(view.gradient(start) - best)), kept

    def report(self, state: Record, seen: RoundView) -> tuple[Columns, Record]:
        """Go on with the curve where the stage has an h."""
        alpha = _alpha(seen.method)
        if alpha is None:
            return {}, state
        T, past, present, clients, switched, stage = state.values.tolist()
        T, past = T + 1, past + present
        if self.reference == SERVER:
            present = float(squared(next(t for n, t in leaves(seen.after) if n.rpartition(".")[2] == "h")))
            clients = 1.0
        else:
            count = len(seen.clients)
            past += T * count * float(seen.measures.first)  # C_0 to C_{T−1} of those that are new
            present += count * float(seen.measures.value)
            clients += count * float(seen.measures.new)
        C, total = present / clients, past / clients
        rate = eta(self.L, alpha)
        gain = rate * (T * C - total)
        if self.zeta is not None and switched < 0 and self.warm_up < T and gain >= self.zeta:
            switched = T
        columns: Columns = {
            "switching/C": C,
            "switching/D": None if self.zeta is None else (self.zeta + rate * total) / T,
            "switching/gain": gain,
            "switching/round": None if switched < 0 else int(switched),
        }
        values = torch.tensor([T, past, present, clients, switched, stage], dtype=torch.float64)
        start = state.start if state.start.numel() or self.reference == SERVER else seen.x_before
        return columns, SwitchingState(values, state.optimum, start)


def _fresh(stage: float) -> Vector:
    return torch.tensor([0, 0, 0, 0, -1, stage], dtype=torch.float64)


@frozen
class SwitchingRule:
    """The rule as a trigger: `stages((FedDyn(), SwitchingRule(zeta=0.06, warm_up=10)), FedAvg())`.

    The stage ends after the first round that `Switching` names; `train` adds that probe by itself.
    """

    zeta: NonNegative
    warm_up: int = 0
    L: NonNegative = 0.0
    reference: str = SERVER

    @property
    def probe(self) -> Switching:
        """Return the probe whose columns the rule reads."""
        return Switching(self.zeta, self.warm_up, self.L, self.reference)

    def __call__(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether the stage is over, from the rows so far."""
        return bool(history) and history[-1].get("switching/round") is not None


def _alpha(method: Algorithm) -> float | None:
    """Return α of a method whose server keeps h, looking into wrappers."""
    inner = getattr(method, "inner", None)
    if inner is not None:
        return _alpha(inner)
    named = {name for name, _ in leaves(method.init(torch.zeros(1)))}
    return getattr(method, "alpha", None) if "h" in named else None


def _load(path: str, layout: Layout) -> Vector:
    """Return the trainable parameters of a saved model as one vector."""
    try:
        tensors = load_file(Path(path))
    except (OSError, SafetensorError) as problem:
        raise ConfigError(f"switching: reference = {path!r}: cannot be read as a model: {problem}") from None
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        if name not in tensors or tensors[name].shape != shape:
            raise ConfigError(
                f"switching: reference = {path!r} has no {name!r} of shape {tuple(shape)}: give a model "
                "of the same kind, as the model.safetensors of a run"
            )
    return torch.cat([tensors[name].reshape(-1).double() for name in layout.names])
