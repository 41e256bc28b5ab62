"""The step of `walk.run_local_steps`, written for a whole cohort at once and without writing in place.

What differs between methods comes in as tensors, so one recorded step serves them all; only what adds
operations (a second gradient, momentum, clipping, an objective) makes a step of another kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedkeel.core.algorithm import Objective, Plan
from fedkeel.core.walk import TINY, StepSettings, bias_of, sharp_of, shrink_of
from fedkeel.engines.stacked.loss import LossInputs, StackedModel, client_loss, mapped_over_clients
from fedkeel.engines.stacked.ragged import StepInputs
from fedkeel.tensors.records import Nothing, Record, leaves, rebuild, transform
from fedkeel.tensors.vector import Vector, norm

Gradient = Callable[[Vector, Record], tuple[Vector, Tensor, Record]]


class StepKind(NamedTuple):
    """What decides which operations a step has."""

    sharp: bool
    momentum: bool
    nesterov: bool
    damped: bool
    clip: str | None
    objective: Callable[..., Any] | None
    padded: bool


class StepScalars(NamedTuple):
    """The scalars of a step, which are passed as one tensor."""

    lr: Tensor
    gain: Tensor
    inside: Tensor  # weight of y in what is clipped
    shrink: Tensor  # weight of y in the rest
    clip: Tensor
    rho: Tensor
    blend: Tensor
    beta: Tensor
    forget: Tensor  # 1 − beta: exact where beta is near one


class StackedState(NamedTuple):
    """What a step changes: (clients, d) each; `moving` are the model's buffers, empty if none changes.

    `clipped` counts the steps that were clipped, (clients, 1), None where nothing is.
    """

    y: Vector
    buffer: Vector | None
    dual: Vector | None
    moving: Record = Nothing()
    clipped: Tensor | None = None


class StepConstants(NamedTuple):
    """What stays the same during a walk."""

    bias: Vector
    tilt: Vector | None
    scalars: Tensor
    context: Record
    pull: Tensor | None = None  # (clients, 1) where it differs between clients; else a scalar has it

    def with_pull(self, factor: Tensor) -> Tensor:
        """Return a factor of y with the pulls that differ between clients."""
        return factor if self.pull is None else factor + self.pull


class PreparedPlan(NamedTuple):
    """A plan as tensors: the kind of its steps, the state before the first, and what stays the same."""

    kind: StepKind
    start: StackedState
    constants: StepConstants
    objective: Objective | None


def prepare_plan(
    plan: Plan, settings: StepSettings, slots: int, padded: bool, moving: Record = None
) -> PreparedPlan:
    """Prepare a stacked plan for that many slots, each with the model's buffers where they change."""
    momentum, sharp, objective = plan.momentum, sharp_of(plan.sharp), plan.objective
    kind = StepKind(
        sharp=sharp is not None,
        momentum=momentum is not None,
        nesterov=momentum is not None and momentum.nesterov,
        damped=momentum is not None and momentum.damped,
        clip=settings.clips,
        objective=None if objective is None else objective.function,
        padded=padded,
    )
    y = fit_to_slots(plan.start, slots)
    buffer = None if momentum is None else momentum.buffer
    if momentum is not None and buffer is None:
        buffer = torch.zeros_like(y)
    bias = bias_of(plan, plan.start if plan.anchor is None else plan.anchor)
    constants = StepConstants(
        bias=torch.zeros_like(y) if bias is None else fit_to_slots(bias, slots),
        tilt=_fit_if_any(sharp and sharp.tilt, slots),
        scalars=_scalars(plan, settings).to(y),
        context=None
        if objective is None
        else transform(lambda t: t if t.ndim == 1 else fit_to_slots(t, slots), objective.context),
        pull=fit_to_slots(plan.pull, slots) if isinstance(plan.pull, Tensor) else None,
    )
    own = transform(lambda tensor: fit_to_slots(tensor, slots), Nothing() if moving is None else moving)
    clipped = None if settings.clips is None else y.new_zeros(slots, 1)
    state = StackedState(
        y, _fit_if_any(buffer, slots), _fit_if_any(sharp and sharp.dual, slots), own, clipped
    )
    return PreparedPlan(kind, state, constants, objective)


def fit_to_slots(tensor: Tensor, slots: int) -> Tensor:
    """Give a tensor one row per slot: all the same if it has no client axis; empty slots repeat the last."""
    rows = tensor.expand(slots, -1) if tensor.ndim == 1 else tensor
    missing = slots - len(rows)
    return (torch.cat([rows, rows[-1:].expand(missing, -1)]) if missing else rows).contiguous()


def _fit_if_any(tensor: Tensor | None, slots: int) -> Tensor | None:
    return None if tensor is None else fit_to_slots(tensor, slots)


def _scalars(plan: Plan, settings: StepSettings) -> Tensor:
    sharp = sharp_of(plan.sharp)
    beta = 0.0 if plan.momentum is None else plan.momentum.beta
    inside, outside = shrink_of(plan, settings, 0.0 if isinstance(plan.pull, Tensor) else plan.pull)
    values = {
        "lr": settings.lr,
        "gain": plan.gain,
        "inside": inside,
        "shrink": outside,
        "clip": settings.clip or 0.0,
        "rho": 0.0 if sharp is None else sharp.rho,
        "blend": 0.0 if sharp is None else sharp.blend,
        "beta": beta,
        "forget": 1.0 - beta,
    }
    return torch.tensor([values[name] for name in StepScalars._fields], dtype=torch.float64)


class StackedStep:
    """A step as a function of flat tensors, in the order state, inputs, constants, fixed; it is recorded."""

    def __init__(self, model: StackedModel, prepared: PreparedPlan, inputs: StepInputs) -> None:
        self._kind, self._templates = prepared.kind, (prepared.start, inputs, prepared.constants)
        self._model, self._loss = model, client_loss(model, prepared.objective)

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return the tensors of the state after the step, and the losses."""
        rest = list(tensors)
        parts = []
        for template in self._templates:
            names = [name for name, _ in leaves(template)]
            parts.append(rebuild(template, dict(zip(names, rest, strict=False))))
            del rest[: len(names)]
        state, inputs, constants = parts
        gradient = self._gradient(state, inputs, constants, rest)
        after, loss = self._advance(state, inputs, constants, gradient)
        return [*(tensor for _, tensor in leaves(after)), loss]

    def _gradient(
        self, state: StackedState, inputs: StepInputs, constants: StepConstants, fixed: list[Tensor]
    ) -> Gradient:
        """Return the clients' gradients, losses and changed buffers as a function of points and buffers."""
        batch = self._model.batch_of(inputs.inputs, inputs.target)
        given = LossInputs(*batch, inputs.weights, constants.context, fixed)
        mapped = mapped_over_clients(self._loss, given._replace(moving=state.moving))
        return lambda y, moving: mapped(y, given._replace(moving=moving))

    def _advance(
        self, state: StackedState, inputs: StepInputs, constants: StepConstants, gradient: Gradient
    ) -> tuple[StackedState, Tensor]:
        scalars = StepScalars(*constants.scalars.unbind())
        g, loss, moving = gradient(state.y, state.moving)
        dual, clipped = state.dual, state.clipped
        if self._kind.sharp:
            g, dual = self._sharpened(g, state._replace(moving=moving), constants, scalars, gradient)
        if self._kind.clip == "gradient":
            g, clipped = self._clip(g, scalars.clip, clipped)
        lr = scalars.lr if inputs.lr is None else inputs.lr
        direction = torch.addcmul(constants.bias, g, scalars.gain)
        if self._kind.clip == "corrected":
            direction = torch.addcmul(direction, state.y, constants.with_pull(scalars.inside))
        if self._kind.clip in ("direction", "corrected"):
            direction, clipped = self._clip(direction, scalars.clip, clipped)
        y, buffer = self._moved(direction, state, constants, scalars, lr)
        alive = inputs.alive
        stepped = StackedState(y, buffer, dual, moving, clipped)
        after = transform(lambda new, old: torch.where(alive, new, old), stepped, state)
        return after, torch.where(alive[:, 0], loss, 0.0)

    def _moved(
        self,
        direction: Vector,
        state: StackedState,
        constants: StepConstants,
        scalars: StepScalars,
        lr: Tensor,
    ) -> tuple[Vector, Vector | None]:
        """Return the points after the step, each rounded once, and the momentum buffers."""
        corrected = self._kind.clip == "corrected"  # then the pull is in what was clipped
        shrink = scalars.shrink if corrected else constants.with_pull(scalars.shrink)
        direction = torch.addcmul(direction, state.y, shrink)
        buffer = None
        if state.buffer is not None:
            if self._kind.damped:
                direction = direction * scalars.forget
            buffer = torch.addcmul(state.buffer, state.buffer, scalars.forget, value=-1) + direction
            direction = torch.addcmul(direction, buffer, scalars.beta) if self._kind.nesterov else buffer
        return torch.addcmul(state.y, direction, lr, value=-1), buffer

    def _sharpened(
        self,
        g: Vector,
        state: StackedState,
        constants: StepConstants,
        scalars: StepScalars,
        gradient: Gradient,
    ) -> tuple[Vector, Vector | None]:
        """Return the blended gradient at the shifted point, and the new dual; buffers stay as they are."""
        dual, tilt = state.dual, constants.tilt
        q = g if dual is None else g - dual
        q = q if tilt is None else q - tilt
        shift = q * (scalars.rho / (self._norm(q) + TINY))
        if dual is not None:
            dual = dual + shift if tilt is None else dual + shift - tilt
        second, _, _ = gradient(state.y + shift, state.moving)
        return second * scalars.blend + g * (1.0 - scalars.blend), dual

    def _clip(self, vector: Vector, bound: Tensor, clipped: Tensor | None) -> tuple[Vector, Tensor]:
        """Return the clipped vectors, and how many of each client's steps have been clipped so far."""
        assert clipped is not None
        factor = bound / self._norm(vector)
        return vector * torch.clamp(factor, max=1.0), clipped + (factor < 1.0)

    def _norm(self, vector: Vector) -> Tensor:
        return norm(vector)
