"""The one inner loop: every method is a plan for this walk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedkeel.common.errors import ConfigError
from fedkeel.core.algorithm import Momentum, Plan, Sharp, Walk
from fedkeel.core.oracle import Oracle
from fedkeel.core.work import AdamW, Work
from fedkeel.data.samples import Batch
from fedkeel.tensors.vector import Vector, norm, scalar_like

ClipOn = Literal["gradient", "direction", "corrected"]

_LARGEST = 1e38  # beyond, float32 has no numbers: a walk that goes so far has diverged
TINY = 1e-7  # keeps a shift finite where the gradient is zero


class StepSettings(NamedTuple):
    """What the walk takes from `Work`: rates, weight decay, clipping, momentum and kind of steps.

    `lr` is the rate of every step, unless `rates` has one for each.
    """

    lr: float
    weight_decay: float = 0.0
    clip: float | None = None
    clip_on: ClipOn = "gradient"
    optimizer: AdamW | None = None
    momentum: Momentum | None = None
    rates: tuple[float, ...] | None = None

    @classmethod
    def of(cls, work: Work, lr: float, rates: tuple[float, ...] | None = None) -> StepSettings:
        """Return the settings of local work in a round with that rate, or with those of its steps."""
        momentum = Momentum(work.momentum, work.nesterov) if work.momentum else None
        return cls(lr, work.weight_decay, work.clip, work.clip_on, work.optimizer, momentum, rates)

    @property
    def clips(self) -> ClipOn | None:
        """Return what is clipped, None where nothing is."""
        return self.clip_on if self.clip else None

    def of_steps(self, steps: int) -> Iterator[float]:
        """Return the rates of that many steps."""
        return repeat(self.lr, steps) if self.rates is None else iter(self.rates[:steps])


class WalkResult(NamedTuple):
    """A finished walk, its mean minibatch loss and the number of its gradients."""

    walk: Walk
    loss: Tensor
    gradients: int


def run_local_steps(
    oracle: Oracle,
    plan: Plan,
    batches: Iterable[Batch],
    settings: StepSettings,
    full_gradient: Callable[[Vector], Vector],
    *,
    trace: Callable[[Vector], None] | None = None,
) -> WalkResult:
    """Walk as planned over the given minibatches; `trace` is shown the point before every step.

    The walk's end is the oracle's own point: it is valid until the oracle's next walk.
    The direction of a step is gain·g + bias + shrink·y with the constant bias = push − pull·anchor and
    shrink = pull + decay + weight_decay, so any method costs what FedAvg costs. All of it is added up before
    y moves: y·(1 − lr·shrink) would round a factor near one, the same way in every step.
    """
    plan = with_local_momentum(plan, settings)
    anchor = plan.start if plan.anchor is None else plan.anchor
    full = full_gradient(anchor) if plan.full_gradient else None
    step = _Step(oracle, plan, settings, anchor)
    y = oracle.point
    y.copy_(plan.start)
    losses, steps = torch.zeros((), dtype=y.dtype, device=y.device), 0
    for batch in batches:
        if trace is not None:
            trace(y)
        losses += step(batch)
        steps += 1
    unit_move = unit_move_of(plan, settings, steps)
    walk = Walk(
        start=plan.start,
        end=y,
        length=scalar_like(y, length_of(settings, steps)),
        steps=scalar_like(y, steps),
        buffer=step.buffer,
        dual=step.dual,
        full_gradient=full,
        unit_move=None if unit_move is None else scalar_like(y, unit_move),
        clipped=step.clipped,
    )
    return WalkResult(walk, losses / steps, steps * (2 if step.sharp else 1))


class _Step:
    """One step of a walk, in place on the oracle's point."""

    def __init__(self, oracle: Oracle, plan: Plan, settings: StepSettings, anchor: Vector) -> None:
        self.oracle, self.plan, self.settings = oracle, plan, settings
        self.bias = bias_of(plan, anchor)
        self.bias_by_gain = self.bias if self.bias is None or plan.gain in (0, 1) else self.bias / plan.gain
        self.inside, self.outside = shrink_of(plan, settings, float(plan.pull))
        self.sharp = sharp_of(plan.sharp)
        self.dual = None if self.sharp is None else self.sharp.dual
        self.momentum = plan.momentum
        self.clipped = scalar_like(oracle.point, 0.0) if settings.clip else None
        self.buffer = _buffer(plan.momentum, oracle.point)
        self.rates = repeat(settings.lr) if settings.rates is None else iter(settings.rates)
        self.moments = None if settings.optimizer is None else Moments(settings.optimizer, oracle.point)
        plain = plan.momentum is None and self.moments is None and settings.clips in (None, "gradient")
        self.affine = plain and plan.gain != 0

    def __call__(self, batch: Batch) -> Tensor:
        if self.sharp is None:
            loss = self.oracle.gradient(batch, self.plan.objective)
        else:
            loss = self._sharp_gradient(batch, self.sharp)
        if self.settings.clip and self.settings.clip_on == "gradient":
            self._clip(self.oracle.grad, self.settings.clip)
        lr = next(self.rates)
        if self.affine:
            self._affine_step(lr)
        else:
            self._general_step(lr)
        return loss

    def _affine_step(self, lr: float) -> None:
        gain = self.plan.gain
        self.oracle.descend(lr * gain, self.outside / gain, self.bias_by_gain)

    def _general_step(self, lr: float) -> None:
        y, direction = self.oracle.point, self.oracle.grad
        direction.mul_(self.plan.gain)
        if self.bias is not None:
            direction.add_(self.bias)
        if self.inside:
            direction.add_(y, alpha=self.inside)
        if self.settings.clip and self.settings.clip_on != "gradient":
            self._clip(direction, self.settings.clip)
        if self.outside:
            direction.add_(y, alpha=self.outside)
        if self.momentum is not None:
            assert self.buffer is not None
            if self.momentum.damped:
                direction.mul_(1.0 - self.momentum.beta)
            self.buffer.add_(self.buffer, alpha=self.momentum.beta - 1.0).add_(direction)
            if self.momentum.nesterov:
                direction.add_(self.buffer, alpha=self.momentum.beta)
            else:
                direction.copy_(self.buffer)
        y.add_(direction if self.moments is None else self.moments.step(direction, y), alpha=-lr)

    def _clip(self, vector: Vector, bound: float) -> None:
        factor = bound / norm(vector)
        vector.mul_(torch.clamp(factor, max=1.0))
        assert self.clipped is not None
        self.clipped += factor < 1.0

    def _sharp_gradient(self, batch: Batch, sharp: Sharp) -> Tensor:
        """Take the gradient at the shifted point: same batch and dropout, statistics of the first pass."""
        oracle = self.oracle
        randomness = oracle.randomness()
        loss = oracle.gradient(batch, self.plan.objective)
        y, g = oracle.point.clone(), oracle.grad.clone()
        q = g
        if self.dual is not None:
            q = q - self.dual
        if sharp.tilt is not None:
            q = q - sharp.tilt
        shift = q * (sharp.rho / (norm(q) + TINY))
        if self.dual is not None:
            self.dual = self.dual + shift if sharp.tilt is None else self.dual + shift - sharp.tilt
        oracle.point.add_(shift)
        oracle.replay(randomness)
        with oracle.buffers_kept():
            oracle.gradient(batch, self.plan.objective)
        if sharp.blend != 1.0:
            oracle.grad.mul_(sharp.blend).add_(g, alpha=1.0 - sharp.blend)
        oracle.point.copy_(y)
        return loss


class Moments:
    """The running means of AdamW over the steps of a walk."""

    def __init__(self, knobs: AdamW, y: Vector) -> None:
        self._knobs, self._steps = knobs, 0
        self._mean, self._square = torch.zeros_like(y), torch.zeros_like(y)

    def step(self, direction: Vector, y: Vector) -> Vector:
        """Return what y moves against, in units of the rate; weight decay is added, not multiplied in."""
        knobs = self._knobs
        self._steps += 1
        self._mean.lerp_(direction, 1.0 - knobs.beta1)
        self._square.lerp_(direction.square(), 1.0 - knobs.beta2)
        mean = self._mean / (1.0 - knobs.beta1**self._steps)
        root = (self._square / (1.0 - knobs.beta2**self._steps)).sqrt_().add_(knobs.eps)
        return mean.div_(root).add_(y, alpha=knobs.weight_decay)


def with_local_momentum(plan: Plan, settings: StepSettings) -> Plan:
    """Return a plan with the momentum of `Work`; refuse it where the plan has a momentum of its own."""
    if settings.momentum is None:
        return plan
    if plan.momentum is not None:
        raise ConfigError(
            f"Work: momentum = {settings.momentum.beta:g}: the method's plan has a momentum of its own, "
            "whose buffer it keeps: leave out momentum of Work, or choose another method"
        )
    return plan._replace(momentum=settings.momentum)


def length_of(settings: StepSettings, steps: int) -> float:
    """Return the sum of the weights with which the directions of a walk's steps entered its move.

    Without momentum of `Work` that is the sum of the rates. With it each direction is repeated by the buffer.
    """
    if settings.momentum is not None:
        return _carried(settings, steps, settings.momentum, 0.0)
    return settings.lr * steps if settings.rates is None else math.fsum(settings.rates[:steps])


def unit_move_of(plan: Plan, settings: StepSettings, steps: int, pull: float | None = None) -> float | None:
    """Return how far a constant gradient of one would carry a walk, None where that is its length.

    `plan` has the momentum of `Work`; `pull` is the client's own, where the plan is that of several.
    """
    pull = float(plan.pull) if pull is None else pull
    if not pull and plan.momentum == settings.momentum:
        return None
    return _carried(settings, steps, plan.momentum, pull)


def _carried(settings: StepSettings, steps: int, momentum: Momentum | None, pull: float) -> float:
    """Walk in one dimension, from zero along a gradient of −1."""
    move = buffer = 0.0
    beta = 0.0 if momentum is None else momentum.beta
    scale = 1.0 - beta if momentum is not None and momentum.damped else 1.0
    nesterov = momentum is not None and momentum.nesterov
    for lr in settings.of_steps(steps):
        direction = scale * (1.0 - pull * move)
        buffer = beta * buffer + direction
        move += lr * (direction + beta * buffer if nesterov else buffer)
    return move if abs(move) < _LARGEST else math.inf


def shrink_of(plan: Plan, settings: StepSettings, pull: float) -> tuple[float, float]:
    """Return the weights of y in the direction: of what is clipped with it, and of what is added after.

    `pull` is the client's own; zero where the plan is that of several, which have one each.
    """
    if settings.clips == "corrected":
        return pull + plan.decay, settings.weight_decay
    return 0.0, pull + plan.decay + settings.weight_decay


def bias_of(plan: Plan, anchor: Vector) -> Vector | None:
    """Return push − pull·anchor, None where it is nothing."""
    if not isinstance(plan.pull, Tensor) and not plan.pull:
        return plan.push
    drawn = -plan.pull * anchor
    return drawn if plan.push is None else plan.push + drawn


def sharp_of(wanted: Sharp | float | None) -> Sharp | None:
    """Return the sharp step a plan asks for, None where it would change nothing."""
    sharp = Sharp(float(wanted)) if isinstance(wanted, int | float) else wanted
    return None if sharp is None or (sharp.rho == 0.0 and sharp.dual is None) else sharp


def _buffer(momentum: Momentum | None, y: Vector) -> Vector | None:
    if momentum is None:
        return None
    return torch.zeros_like(y) if momentum.buffer is None else momentum.buffer.clone()
