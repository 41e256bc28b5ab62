"""Relaxed initialisation, Sun et al. 2023 (FedInit): start each client a little away from its last end."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Number, Proportion, UnitInterval
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Plan, Walk, Wrapper, method
from fedkeel.methods.fedavg import FedAvg
from fedkeel.methods.stages import Stages, on_each
from fedkeel.tensors.records import Record
from fedkeel.tensors.vector import Vector, norm, scalar_like, zeros_like


@method
class Decayed:
    """β_t = beta · decay^t with t the round of its stage: Σβ_t stays bounded, as Theorem 15 asks."""

    beta: Number = 0.1
    decay: UnitInterval = 0.99


@method
class Adaptive:
    """β_t = momentum · N/C · min(1, signal/noise): full where the server's moves agree, else zero.

    Our answer to the open problem of §5.4. With "model" aggregation β acts as a global momentum of β·C/N,
    because x − last holds the C/N rounds since the client's last turn. N/C, the cohort's share, keeps that
    factor below `momentum` for every participation; where moves are noise, momentum would only multiply it.
    Signal and noise are those of M, the mean of the server's moves over about C/N rounds (see `Moves`). One
    number more is sent; the server keeps M. docs/relaxed.md has the derivation and runs.
    """

    momentum: Proportion = 1.0

    def largest(self, share: float) -> float:
        """Return the largest β where that share of the clients takes part; zero where all do."""
        return self.momentum * share if share < 1 else 0.0


class Moves(NamedTuple):
    """The server's recent moves: M, their mean, and S, the ‖M‖² of moves without anything in common.

    M ← M + share·(move − M) and S ← (1 − share)²·S + share²·‖move‖². Momentum of factor a makes the ‖M‖² of
    pure noise up to 1/(1 − a) times as large; `a` is the mean factor of these rounds.
    """

    M: Vector
    S: Vector
    a: Vector

    def followed_by(self, move: Vector, share: float, beta: Vector) -> Moves:
        """Return the moves with one more, of a round with that share and that β."""
        return Moves(
            self.M + share * (move - self.M),
            (1 - share) ** 2 * self.S + (share * norm(move)) ** 2,
            self.a + (1 - share) * beta - share * self.a,  # share·(β/share·(1 − share) − a)
        )

    @property
    def signal_to_noise(self) -> Vector:
        """Return how far ‖M‖² exceeds what noise gives, S/(1 − a), as a part of it; from 0 to 1."""
        noise = torch.clamp(self.S / (1 - self.a), min=1e-30)
        return torch.clamp(norm(self.M) ** 2 / noise - 1, min=0.0, max=1.0)


@method
class Relaxed(Wrapper):
    """Sun et al. 2023: start at z = x + β·(x − last), `last` the client's end model of its last round.

    `aggregate="model"` (the paper; the field is `origin`) moves only the start: anchor and origin of D stay
    the broadcast model, so the server averages end models. `"walk"` (FL-Simulator) hands z to the inner
    method in place of the broadcast model; `gamma="end"` then lets the server step from the mean start, so
    that the γ of FedDyn, FedSpeed and FedSMOO is the mean end model again, as there. `first="initial"`: a
    client never drawn has last = x⁰ (the paper); `"none"`: no offset the first time. Under "model" x can grow
    without bound once a constant β·C/N exceeds about 1; `Adaptive` chooses a β that does not.
    """

    beta: Number | Decayed | Adaptive = 0.1
    first: Literal["initial", "none"] = "initial"
    origin: Literal["model", "walk"] = "model"
    gamma: Literal["walk", "end"] = "walk"

    class Server(NamedTuple):
        """The inner state, this round's β where it changes, the moves that Adaptive takes it from."""

        inner: Record
        beta: Vector | None
        moves: Moves | None

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
        """The inner memory, the last end model, how often it took part."""

        inner: Record
        last: Vector
        seen: Vector

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
        """Start with the first round's β; Adaptive has none before the first move."""
        inner = self.inner.init(x)
        if isinstance(self.beta, Decayed):
            return self.Server(inner, scalar_like(x, self.beta.beta), None)
        if isinstance(self.beta, Adaptive):
            none = scalar_like(x, 0.0)
            return self.Server(inner, none, Moves(zeros_like(x), none, none))
        return self.Server(inner, None, None)

    def init_client(self, x0: Vector) -> Client:
        """Start with x⁰ as the last end model."""
        return self.Client(self.inner.init_client(x0), x0, scalar_like(x0, 0.0))

    def broadcast(self, server: Server) -> Down:
        """Send what the inner method sends."""
        return self.Down(self.inner.broadcast(server.inner), server.beta)

    def plan(self, down: Down, client: Client, facts: Facts) -> Plan:
        """Move the start by β·(x − last)."""
        z = down.x + self._offset(down, client)
        if self.origin == "walk":
            return self.inner.plan(down.inner._replace(x=z), client.inner, facts)
        plan = self.inner.plan(down.inner, client.inner, facts)
        return plan._replace(start=z, anchor=plan.start if plan.anchor is None else plan.anchor)

    def finish(self, walk: Walk, down: Down, client: Client, facts: Facts) -> tuple[Up, Client]:
        """Remember the end model."""
        seen_from = down.inner._replace(x=walk.start) if self.origin == "walk" else down.inner
        up, memory = self.inner.finish(walk, seen_from, client.inner, facts)
        offset = walk.start - down.x if self._steps_from_starts else None
        return self.Up(up, offset), self.Client(memory, walk.end, client.seen + 1)

    def aggregate(self, server: Server, mean: Up, cohort: Cohort) -> Server:
        """Let the inner method aggregate and set the next round's β."""
        inner, beta, moves = server
        if mean.offset is not None:
            inner = inner._replace(x=inner.x + mean.offset)
        inner = self.inner.aggregate(inner, mean.inner, cohort)
        if beta is not None and isinstance(self.beta, Decayed):
            beta = beta * self.beta.decay
        if beta is not None and moves is not None and isinstance(self.beta, Adaptive):
            moves = moves.followed_by(inner.x - server.x, cohort.share, beta)
            beta = self.beta.momentum * cohort.share * moves.signal_to_noise
        return self.Server(inner, beta, moves)

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
        beta = self.beta if down.beta is None else down.beta
        assert not isinstance(beta, Decayed | Adaptive)
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
