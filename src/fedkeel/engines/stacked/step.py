"""The step of `walk.take`, written for a whole cohort at once and without writing in place.

What differs between methods comes in as tensors, so one recorded step serves them all; only what adds
operations (a second gradient, momentum, clipping, an objective) makes a step of another kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedkeel.algorithm import Objective, Plan
from fedkeel.engines.stacked.loss import Given, Net, loss_of, mapped_over_clients
from fedkeel.engines.stacked.ragged import Feed
from fedkeel.records import Nothing, Record, leaves, rebuild, transform
from fedkeel.vector import Vector, norm
from fedkeel.walk import TINY, Pace, bias_of, sharp_of

Gradient = Callable[[Vector, Record], tuple[Vector, Tensor, Record]]


class Kind(NamedTuple):
    """What decides which operations a step has."""

    sharp: bool
    momentum: bool
    nesterov: bool
    clip: str | None
    objective: Callable[..., Any] | None
    padded: bool


class Numbers(NamedTuple):
    """The scalars of a step, handed over as one tensor."""

    lr: float | Tensor
    keep: float | Tensor
    rate: float | Tensor
    gain: float | Tensor
    shrink: float | Tensor
    clip: float | Tensor
    rho: float | Tensor
    blend: float | Tensor
    beta: float | Tensor


class State(NamedTuple):
    """What a step moves: (clients, d) each; `moving` are the model's buffers, empty where none moves."""

    y: Vector
    buffer: Vector | None
    dual: Vector | None
    moving: Record = Nothing()


class Words(NamedTuple):
    """What stays during a walk."""

    bias: Vector
    tilt: Vector | None
    numbers: Tensor
    context: Record


class Route(NamedTuple):
    """A plan made ready: the kind of its steps, where the walk stands, and what stays."""

    kind: Kind
    start: State
    words: Words
    objective: Objective | None


def route(plan: Plan, pace: Pace, slots: int, padded: bool, moving: Record = None) -> Route:
    """Make a stacked plan ready for that many slots, each with the model's buffers where they move."""
    momentum, sharp, objective = plan.momentum, sharp_of(plan.sharp), plan.objective
    kind = Kind(
        sharp=sharp is not None,
        momentum=momentum is not None,
        nesterov=momentum is not None and momentum.nesterov,
        clip=("direction" if pace.clip_direction else "gradient") if pace.clip else None,
        objective=None if objective is None else objective.function,
        padded=padded,
    )
    y = fit(plan.start, slots)
    buffer = None if momentum is None else momentum.buffer
    if momentum is not None and buffer is None:
        buffer = torch.zeros_like(y)
    bias = bias_of(plan, plan.start if plan.anchor is None else plan.anchor)
    words = Words(
        bias=torch.zeros_like(y) if bias is None else fit(bias, slots),
        tilt=_fit_all(sharp and sharp.tilt, slots),
        numbers=torch.tensor(_numbers(plan, pace), dtype=y.dtype, device=y.device),
        context=None
        if objective is None
        else transform(lambda t: t if t.ndim == 1 else fit(t, slots), objective.context),
    )
    own = transform(lambda tensor: fit(tensor, slots), Nothing() if moving is None else moving)
    state = State(y, _fit_all(buffer, slots), _fit_all(sharp and sharp.dual, slots), own)
    return Route(kind, state, words, objective)


def fit(tensor: Tensor, slots: int) -> Tensor:
    """Give a tensor one row a slot: all the same where it has no client axis; empty slots repeat the last."""
    rows = tensor.expand(slots, -1) if tensor.ndim == 1 else tensor
    missing = slots - len(rows)
    return (torch.cat([rows, rows[-1:].expand(missing, -1)]) if missing else rows).contiguous()


def _fit_all(tensor: Tensor | None, slots: int) -> Tensor | None:
    return None if tensor is None else fit(tensor, slots)


def _numbers(plan: Plan, pace: Pace) -> Numbers:
    sharp, shrink = sharp_of(plan.sharp), plan.pull + plan.decay + pace.weight_decay
    return Numbers(
        lr=pace.lr,
        keep=1.0 - pace.lr * shrink,
        rate=pace.lr * plan.gain,
        gain=plan.gain,
        shrink=shrink,
        clip=pace.clip or 0.0,
        rho=0.0 if sharp is None else sharp.rho,
        blend=0.0 if sharp is None else sharp.blend,
        beta=0.0 if plan.momentum is None else plan.momentum.beta,
    )


class Step:
    """A step as a function of flat tensors, in the order state, feed, words, fixed: what is recorded."""

    def __init__(self, net: Net, ready: Route, feed: Feed) -> None:
        self._kind, self._templates = ready.kind, (ready.start, feed, ready.words)
        self._net, self._loss = net, loss_of(net, ready.objective)

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return the moved state's tensors and the losses."""
        rest = list(tensors)
        parts = []
        for template in self._templates:
            names = [name for name, _ in leaves(template)]
            parts.append(rebuild(template, dict(zip(names, rest, strict=False))))
            del rest[: len(names)]
        state, feed, words = parts
        moved, loss = self._advance(state, feed, words, self._gradient(state, feed, words, rest))
        return [*(tensor for _, tensor in leaves(moved)), loss]

    def _gradient(self, state: State, feed: Feed, words: Words, fixed: list[Tensor]) -> Gradient:
        """Return the clients' gradients, losses and moved buffers as a function of points and buffers."""
        given = Given(feed.inputs, feed.target, feed.weights, words.context, fixed)
        mapped = mapped_over_clients(self._loss, given._replace(moving=state.moving))
        return lambda y, moving: mapped(y, given._replace(moving=moving))

    def _advance(self, state: State, feed: Feed, words: Words, gradient: Gradient) -> tuple[State, Tensor]:
        numbers = Numbers(*words.numbers.unbind())
        g, loss, moving = gradient(state.y, state.moving)
        dual = state.dual
        if self._kind.sharp:
            at = state._replace(moving=moving)
            g, dual = self._sharpened(g, at, words, numbers, gradient)
        if self._kind.clip == "gradient":
            g = self._clipped(g, numbers.clip)
        if self._kind.momentum or self._kind.clip == "direction":
            y, buffer = self._general(g, state, words, numbers)
        else:
            y, buffer = state.y * numbers.keep - g * numbers.rate - words.bias * numbers.lr, None
        alive = feed.alive
        after = State(y, buffer, dual, moving)
        moved = transform(lambda new, old: torch.where(alive, new, old), after, state)
        return moved, torch.where(alive[:, 0], loss, 0.0)

    def _general(
        self, g: Vector, state: State, words: Words, numbers: Numbers
    ) -> tuple[Vector, Vector | None]:
        direction = g * numbers.gain + words.bias
        if self._kind.clip == "direction":
            direction = self._clipped(direction, numbers.clip)
        direction = direction + state.y * numbers.shrink
        buffer = None
        if state.buffer is not None:
            buffer = state.buffer * numbers.beta + direction
            direction = direction + buffer * numbers.beta if self._kind.nesterov else buffer
        return state.y - direction * numbers.lr, buffer

    def _sharpened(
        self, g: Vector, state: State, words: Words, numbers: Numbers, gradient: Gradient
    ) -> tuple[Vector, Vector | None]:
        """Return the gradient at the shifted point, blended, and the moved dual; buffers stay as they are."""
        dual, tilt = state.dual, words.tilt
        q = g if dual is None else g - dual
        q = q if tilt is None else q - tilt
        shift = q * (numbers.rho / (self._length(q) + TINY))
        if dual is not None:
            dual = dual + shift if tilt is None else dual + shift - tilt
        second, _, _ = gradient(state.y + shift, state.moving)
        return second * numbers.blend + g * (1.0 - numbers.blend), dual

    def _clipped(self, vector: Vector, bound: float | Tensor) -> Vector:
        return vector * torch.clamp(bound / self._length(vector), max=1.0)

    def _length(self, vector: Vector) -> Tensor:
        return norm(vector)
