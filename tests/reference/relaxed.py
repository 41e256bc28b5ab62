"""The relaxed-initialisation plug-in: start each walk beyond x, away from the client's last end model."""

import copy

import numpy as np


class Relaxed:
    """z = x + β_t·(x − last), with `last` the client's end model of its last participation."""

    kept = ("x0", "last", "walks")

    def __init__(
        self, x0, beta=0.1, decay=1.0, adaptive=False, first="initial", aggregate="model", gamma="walk"
    ):
        assert first in ("initial", "none")
        assert aggregate in ("model", "walk")
        assert gamma in ("walk", "end")
        self.beta, self.decay, self.adaptive = beta, decay, adaptive
        self.first, self.aggregate, self.gamma = first, aggregate, gamma
        self.x0 = np.array(x0, dtype=np.float64)
        self.last, self.walks = {}, {}

    def start(self, i, x, t):
        """Where client i starts in round t, when x was broadcast."""
        new = i not in self.last
        if new and (self.first == "none" or self.adaptive):
            return x
        offset = x - (self.x0 if new else self.last[i])
        beta = self.beta * self.decay**t
        distance = np.linalg.norm(offset)
        if self.adaptive and distance > 0:
            beta = beta * min(1.0, np.mean(self.walks[i]) / distance)
        return x + beta * offset

    def remember(self, i, start, end):
        self.last[i] = end
        self.walks.setdefault(i, []).append(float(np.linalg.norm(end - start)))

    def state(self):
        """`last` by client, and `walk_mean`, the mean length of the client's walks so far."""
        means = {i: float(np.mean(lengths)) for i, lengths in self.walks.items()}
        return {"last": copy.deepcopy(self.last), "walk_mean": means}

    def adopt(self, other):
        for name in self.kept:
            setattr(self, name, copy.deepcopy(getattr(other, name)))
