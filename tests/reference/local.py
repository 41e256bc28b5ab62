"""What every local loop shares: minibatch gradients, clipping, the sharp plug-in, weighted means."""

from dataclasses import dataclass
from typing import Any

import numpy as np

SHARP_GUARD = 1e-7


def ascend(q, rho):
    """The SAM shift e = ρ·q / (‖q‖ + 1e-7)."""
    return rho * q / (np.linalg.norm(q) + SHARP_GUARD)


def clipped(v, limit, eps):
    """V scaled down to norm `limit` where it is longer (`eps` as in torch's clip_grad_norm_)."""
    return v * min(1.0, limit / (np.linalg.norm(v) + eps))


def weighted_mean(records, weights):
    """The weighted mean of a list of dictionaries of arrays or numbers, key by key."""
    total = sum(weights)
    return {
        key: sum(p * record[key] for p, record in zip(weights, records, strict=True)) / total
        for key in records[0]
    }


@dataclass
class Local:
    """One client in one round: its data, its minibatches, its learning rate, its gradients."""

    problem: Any
    X: np.ndarray
    Y: np.ndarray
    batches: list
    lr: float
    wd: float = 0.0
    clip: float | None = None
    clip_on: str = "gradient"
    clip_eps: float = 1e-6
    rho: float = 0.0  # of the sharp plug-in
    adamw: tuple | None = None  # beta1, beta2, eps and its own weight decay
    momentum: float = 0.0
    nesterov: bool = False
    factors: list | None = None  # of a schedule, one for each step
    moments: tuple = (0.0, 0.0)
    buffer: Any = 0.0
    taken: int = 0

    @property
    def rates(self):
        """The learning rates of all steps."""
        factors = [1.0] * len(self.batches) if self.factors is None else self.factors
        return [self.lr * factor for factor in factors]

    @property
    def length(self):
        """The sum of the weights with which the steps' directions enter the move.

        Direction j enters step k ≥ j with β^(k−j), with Nesterov's momentum with β^(k−j+1), and step j itself
        with one more.
        """
        rates, b = self.rates, self.momentum
        if not b:
            return sum(rates)
        total = 0.0
        for k, rate in enumerate(rates):
            powers = [b ** (k - j) for j in range(k + 1)]
            total += rate * (1 + b * sum(powers) if self.nesterov else sum(powers))
        return total

    def reach(self, pull):
        """How far a constant unit gradient would carry the walk, held near its start by `pull`.

        A product of matrices that act on (move, buffer, 1).
        """
        b, state = self.momentum, np.array([0.0, 0.0, 1.0])
        for rate in self.rates:
            direction = np.array([-pull, 0.0, 1.0])
            buffer = direction + np.array([0.0, b, 0.0])
            walked = direction + b * buffer if self.nesterov else buffer
            state = np.array([np.array([1.0, 0.0, 0.0]) + rate * walked, buffer, [0.0, 0.0, 1.0]]) @ state
        return state[0]

    def plain(self, y, batch, extra=None):
        """The minibatch gradient at y, neither sharpened nor clipped; `extra(y, X, Y)` is added to it."""
        X, Y = self.X[batch], self.Y[batch]
        g = self.problem.grad(y, X, Y)
        return g if extra is None else g + extra(y, X, Y)

    def g(self, y, batch, extra=None):
        """The gradient that a step uses: at the shifted point with the sharp plug-in, then clipped."""
        g = self.plain(y, batch, extra)
        if self.rho:
            g = self.plain(y + ascend(g, self.rho), batch, extra)
        return self.trim(g)

    def trim(self, g):
        """Clip a gradient, where gradients are what is clipped."""
        wanted = self.clip is not None and self.clip_on == "gradient"
        return clipped(g, self.clip, self.clip_eps) if wanted else g

    def cut(self, direction):
        """Clip a direction (without its terms in y), where directions are what is clipped."""
        wanted = self.clip is not None and self.clip_on == "direction"
        return clipped(direction, self.clip, self.clip_eps) if wanted else direction

    def fix(self, direction):
        """Clip a direction with its terms in y, but without weight decay, where that is what is clipped."""
        wanted = self.clip is not None and self.clip_on == "corrected"
        return clipped(direction, self.clip, self.clip_eps) if wanted else direction

    def rate(self):
        """The rate of the next step; it counts that step as taken."""
        self.taken += 1
        return self.rates[self.taken - 1]

    def step(self, y, direction):
        """The point after a step along a direction: of SGD, or of AdamW as Loshchilov and Hutter write it."""
        lr, direction = self.rate(), self.fix(direction)
        if self.adamw is None:
            direction = direction + self.wd * y
            self.buffer = self.momentum * self.buffer + direction
            if self.nesterov:
                return y - lr * (direction + self.momentum * self.buffer)
            return y - lr * self.buffer
        beta1, beta2, eps, decay = self.adamw
        m, v = self.moments
        m, v = beta1 * m + (1 - beta1) * direction, beta2 * v + (1 - beta2) * direction**2
        self.moments = (m, v)
        mean, square = m / (1 - beta1**self.taken), v / (1 - beta2**self.taken)
        return y - lr * (mean / (np.sqrt(square) + eps) + decay * y)

    def full_gradient(self, x):
        """The gradient at x over all the client's samples: loss alone."""
        return self.problem.grad(x, self.X, self.Y)
