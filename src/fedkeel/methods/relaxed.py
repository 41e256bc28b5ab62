"""Relaxed initialisation, Sun et al. 2023 (FedInit): start each client a little away from its last end."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from fedkeel.algorithm import Algorithm, Cohort, Plan, Walk, Wrapper, method
from fedkeel.errors import ConfigError
from fedkeel.frozen import Number, UnitInterval
from fedkeel.methods.fedavg import FedAvg
from fedkeel.methods.stages import Stages, on_each
from fedkeel.records import Record
from fedkeel.vector import Vector, norm, scalar_like


@method
class Decayed:
    """β_t = beta · decay^t with t the round of its stage: Σβ_t stays bounded, as Theorem 15 asks."""

    beta: Number = 0.1
    decay: UnitInterval = 0.99


@method
class Adaptive:
    """β · min(1, r/‖x − last‖), r the running mean of how far this client's own walks went.

    Our answer to the open problem of §5.4: the offset never outgrows a walk. Nothing more is sent.
    """

    beta: Number = 0.1


@method
class Relaxed(Wrapper):
    """Sun et al. 2023: start at z = x + β·(x − last), `last` the client's end model of its last round.

    `aggregate="model"` (the paper; the field is `origin`) moves only the start: anchor and origin of D stay
    the broadcast model, so the server averages end models. `"walk"` (FL-Simulator) hands z to the inner
    method in place of the broadcast model; `gamma="end"` then lets the server step from the mean start, so
    that the γ of FedDyn, FedSpeed and FedSMOO is the mean end model again, as there. `first="initial"`: a
    client never drawn has last = x⁰ (the paper); `"none"`: no offset the first time. Under "model" x can grow
    without bound once β·C/N exceeds about 1.
    """

    beta: Number | Decayed | Adaptive = 0.1
    first: Literal["initial", "none"] = "initial"
    origin: Literal["model", "walk"] = "model"
    gamma: Literal["walk", "end"] = "walk"

    class Server(NamedTuple):
        """The inner state, and this round's β where it changes with the round."""

        inner: Record
        beta: Vector | None

        @property
        def x(self) -> Vector:
            """The model."""
            return self.inner.x  # type: ignore[no-any-return]

    class Down(NamedTuple):
        """The inner message, and this round's β where it changes with the round."""

        inner: Record
        beta: Vector | None

        @property
        def x(self) -> Vector:
            """The broadcast model."""
            return self.inner.x  # type: ignore[no-any-return]

    class Client(NamedTuple):
        """The inner memory, the last end model, how often it took part, the mean reach of its walks."""

        inner: Record
        last: Vector
        seen: Vector
        reach: Vector | None

    class Up(NamedTuple):
        """The inner upload, and the offset of the start where the server needs its mean."""

        inner: Record
        offset: Vector | None

    def __post_init__(self) -> None:
        if isinstance(self.inner, Relaxed):
            raise ConfigError("relaxed(relaxed(…)): give one beta, the offsets do not add up to a method")
        if self.gamma == "end" and self.origin == "model":
            raise ConfigError(
                "relaxed: gamma='end' goes with aggregate='walk'; 'model' averages end models anyway"
            )

    def __repr__(self) -> str:
        knobs = f"beta={self.beta!r}, first={self.first!r}, aggregate={self.origin!r}, gamma={self.gamma!r}"
        return f"relaxed({self.inner!r}, {knobs})"

    def init(self, x: Vector) -> Server:
        """Start with the first round's β."""
        beta = scalar_like(x, self.beta.beta) if isinstance(self.beta, Decayed) else None
        return self.Server(self.inner.init(x), beta)

    def enlist(self, x0: Vector) -> Client:
        """Start with x⁰ as the last end model."""
        reach = scalar_like(x0, 0.0) if isinstance(self.beta, Adaptive) else None
        return self.Client(self.inner.enlist(x0), x0, scalar_like(x0, 0.0), reach)

    def broadcast(self, server: Server) -> Down:
        """Send what the inner method sends."""
        return self.Down(self.inner.broadcast(server.inner), server.beta)

    def plan(self, down: Down, client: Client) -> Plan:
        """Move the start by β·(x − last)."""
        z = down.x + self._offset(down, client)
        if self.origin == "walk":
            return self.inner.plan(down.inner._replace(x=z), client.inner)
        plan = self.inner.plan(down.inner, client.inner)
        return plan._replace(start=z, anchor=plan.start if plan.anchor is None else plan.anchor)

    def finish(self, walk: Walk, down: Down, client: Client) -> tuple[Up, Client]:
        """Remember the end model."""
        seen_from = down.inner._replace(x=walk.start) if self.origin == "walk" else down.inner
        up, memory = self.inner.finish(walk, seen_from, client.inner)
        seen = client.seen + 1
        reach = client.reach
        if reach is not None:
            reach = reach + (norm(walk.end - walk.start) - reach) / seen
        offset = walk.start - down.x if self._steps_from_starts else None
        return self.Up(up, offset), self.Client(memory, walk.end, seen, reach)

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Let the inner method aggregate and set the next round's β."""
        inner = server.inner
        if mean.offset is not None:
            inner = inner._replace(x=inner.x + mean.offset)
        beta = server.beta
        if beta is not None and isinstance(self.beta, Decayed):
            beta = beta * self.beta.decay
        return self.Server(self.inner.aggregate(inner, mean.inner, cohort), beta)

    def models(self, server: Server) -> dict[str, Vector]:
        """Evaluate what the inner method evaluates."""
        return self.inner.models(server.inner)

    @property
    def _steps_from_starts(self) -> bool:
        return self.origin == "walk" and self.gamma == "end"

    def _offset(self, down: Down, client: Client) -> Vector:
        gap = down.x - client.last
        if self.first == "none":
            gap = gap * (client.seen > 0)
        if isinstance(self.beta, Adaptive):
            assert client.reach is not None
            scale = torch.clamp(client.reach / torch.clamp(norm(gap), min=1e-30), max=1.0)
            return gap * (self.beta.beta * scale)
        beta = down.beta if isinstance(self.beta, Decayed) else self.beta
        assert beta is not None
        return beta * gap


def relaxed(
    inner: Algorithm | Stages,
    beta: float | Decayed | Adaptive = 0.1,
    first: Literal["initial", "none"] = "initial",
    aggregate: Literal["model", "walk"] = "model",
    gamma: Literal["walk", "end"] = "walk",
) -> Algorithm | Stages:
    """Start each client away from its last end: relaxed initialisation on any method or on each stage.

    The arguments are described in `Relaxed`.
    """
    if aggregate not in ("model", "walk"):
        raise ConfigError(f"relaxed: aggregate = {aggregate!r}: choose one of model, walk")
    return on_each(inner, lambda one: Relaxed(one, beta, first, aggregate, gamma))


def FedInit(  # noqa: N802  a paper's name
    beta: float | Decayed | Adaptive = 0.1,
    first: Literal["initial", "none"] = "initial",
    aggregate: Literal["model", "walk"] = "model",
) -> Relaxed:
    """Sun et al. 2023: relaxed initialisation on FedAvg."""
    return Relaxed(FedAvg(), beta, first, aggregate)
