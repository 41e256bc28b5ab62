"""The one inner loop: every method is a plan for this walk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from fedkeel.algorithm import Momentum, Plan, Sharp, Walk
from fedkeel.data.samples import Batch
from fedkeel.oracle import Oracle
from fedkeel.vector import Vector, norm, scalar_like
from fedkeel.work import AdamW, Work

TINY = 1e-7  # keeps a shift finite where the gradient is zero


class Pace(NamedTuple):
    """What the walk takes from `Work`: this round's rate, weight decay, clipping and kind of steps."""

    lr: float
    weight_decay: float = 0.0
    clip: float | None = None
    clip_direction: bool = False
    optimizer: AdamW | None = None

    @classmethod
    def of(cls, work: Work, lr: float) -> Pace:
        """Return the pace of local work in a round with that rate."""
        return cls(lr, work.weight_decay, work.clip, work.clip_on == "direction", work.optimizer)


class WalkResult(NamedTuple):
    """A finished walk, its mean minibatch loss and the number of its gradients."""

    walk: Walk
    loss: Tensor
    gradients: int


def take(
    oracle: Oracle,
    plan: Plan,
    batches: Iterable[Batch],
    pace: Pace,
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
    anchor = plan.start if plan.anchor is None else plan.anchor
    full = full_gradient(anchor) if plan.full_gradient else None
    step = _Step(oracle, plan, pace, anchor)
    y = oracle.point
    y.copy_(plan.start)
    losses, steps = torch.zeros((), dtype=y.dtype, device=y.device), 0
    for batch in batches:
        if trace is not None:
            trace(y)
        losses += step(batch)
        steps += 1
    walk = Walk(
        start=plan.start,
        end=y,
        length=scalar_like(y, pace.lr * steps),
        steps=scalar_like(y, steps),
        buffer=step.buffer,
        dual=step.dual,
        full_gradient=full,
    )
    return WalkResult(walk, losses / steps, steps * (2 if step.sharp else 1))


class _Step:
    """One step of a walk, in place on the oracle's point."""

    def __init__(self, oracle: Oracle, plan: Plan, pace: Pace, anchor: Vector) -> None:
        self.oracle, self.plan, self.pace = oracle, plan, pace
        self.bias = bias_of(plan, anchor)
        self.bias_by_gain = self.bias if self.bias is None or plan.gain in (0, 1) else self.bias / plan.gain
        self.shrink = float(plan.pull) + plan.decay + pace.weight_decay
        self.sharp = sharp_of(plan.sharp)
        self.dual = None if self.sharp is None else self.sharp.dual
        self.momentum = plan.momentum
        self.buffer = _buffer(plan.momentum, oracle.point)
        clips = pace.clip and pace.clip_direction
        self.moments = None if pace.optimizer is None else Moments(pace.optimizer, oracle.point)
        self.affine = plan.momentum is None and self.moments is None and not clips and plan.gain != 0

    def __call__(self, batch: Batch) -> Tensor:
        if self.sharp is None:
            loss = self.oracle.gradient(batch, self.plan.objective)
        else:
            loss = self._sharp_gradient(batch, self.sharp)
        if self.pace.clip and not self.pace.clip_direction:
            _clip_(self.oracle.grad, self.pace.clip)
        if self.affine:
            self._affine_step()
        else:
            self._general_step()
        return loss

    def _affine_step(self) -> None:
        gain = self.plan.gain
        self.oracle.descend(self.pace.lr * gain, self.shrink / gain, self.bias_by_gain)

    def _general_step(self) -> None:
        y, direction = self.oracle.point, self.oracle.grad
        direction.mul_(self.plan.gain)
        if self.bias is not None:
            direction.add_(self.bias)
        if self.pace.clip and self.pace.clip_direction:
            _clip_(direction, self.pace.clip)
        if self.shrink:
            direction.add_(y, alpha=self.shrink)
        if self.momentum is not None:
            assert self.buffer is not None
            self.buffer.add_(self.buffer, alpha=self.momentum.beta - 1.0).add_(direction)
            if self.momentum.nesterov:
                direction.add_(self.buffer, alpha=self.momentum.beta)
            else:
                direction.copy_(self.buffer)
        y.add_(direction if self.moments is None else self.moments.step(direction, y), alpha=-self.pace.lr)

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


def _clip_(vector: Vector, bound: float) -> None:
    vector.mul_(torch.clamp(bound / norm(vector), max=1.0))
