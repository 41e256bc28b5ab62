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
    moments: tuple = (0.0, 0.0)
    taken: int = 0

    @property
    def length(self):
        """The sum of the learning rates of the steps taken."""
        return sum(self.lr for _ in self.batches)

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

    def step(self, y, direction):
        """The point after a step along a direction: of SGD, or of AdamW as Loshchilov and Hutter write it."""
        if self.adamw is None:
            return y - self.lr * (direction + self.wd * y)
        beta1, beta2, eps, decay = self.adamw
        m, v = self.moments
        m, v = beta1 * m + (1 - beta1) * direction, beta2 * v + (1 - beta2) * direction**2
        self.moments, self.taken = (m, v), self.taken + 1
        mean, square = m / (1 - beta1**self.taken), v / (1 - beta2**self.taken)
        return y - self.lr * (mean / (np.sqrt(square) + eps) + decay * y)

    def full_gradient(self, x):
        """The gradient at x over all the client's samples: loss alone."""
        return self.problem.grad(x, self.X, self.Y)
