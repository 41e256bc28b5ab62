"""The relaxed-initialisation plug-in: start each walk beyond x, away from the client's last end model."""

import copy

import numpy as np


class Relaxed:
    """z = x + β_t·(x − last), with `last` the client's end model of its last participation.

    `adaptive` gives the momentum ρ instead of β: β_t = ρ·p·min(1, max(0, (1 − a)·‖M‖²/S − 1)), p the share of
    the last round, M = Σ c_r·move_r, S = Σ c_r²·‖move_r‖², a = Σ c_r·(1 − p_r)·β_r/p_r over the rounds r,
    c_r = p_r·Π(1 − p_q) over the rounds q after r.
    """

    kept = ("x0", "last", "moves")

    def __init__(
        self, x0, beta=0.1, decay=1.0, adaptive=None, first="initial", aggregate="model", gamma="walk"
    ):
        assert first in ("initial", "none")
        assert aggregate in ("model", "walk")
        assert gamma in ("walk", "end")
        self.beta, self.decay, self.adaptive = beta, decay, adaptive
        self.first, self.aggregate, self.gamma = first, aggregate, gamma
        self.x0 = np.array(x0, dtype=np.float64)
        self.last, self.moves = {}, []

    def start(self, i, x, t):
        """Where client i starts in round t, when x was broadcast."""
        new = i not in self.last
        if new and self.first == "none":
            return x
        beta = self.beta * self.decay**t if self.adaptive is None else self.adapted()
        return x + beta * (x - (self.x0 if new else self.last[i]))

    def adapted(self):
        """This round's β from all moves of the server so far."""
        if not self.moves:
            return 0.0
        moves, shares, betas = (np.array(column) for column in zip(*self.moves, strict=True))
        weights = shares * np.append(np.cumprod((1 - shares)[:0:-1])[::-1], 1.0)
        mean = weights @ moves
        alone = np.sum(weights**2 * np.sum(moves**2, axis=1))
        factor = weights @ ((1 - shares) * betas / shares)
        if alone == 0:
            return 0.0
        return self.adaptive * shares[-1] * min(1.0, max(0.0, (1 - factor) * mean @ mean / alone - 1.0))

    def remember(self, i, end):
        self.last[i] = end

    def moved(self, move, share):
        """The server has moved, in a round with that share of the clients."""
        self.moves.append((move, share, 0.0 if self.adaptive is None else self.adapted()))

    def state(self):
        """`last` by client, and `beta`, what the next round takes."""
        return {"last": copy.deepcopy(self.last)} | (
            {} if self.adaptive is None else {"beta": self.adapted()}
        )

    def adopt(self, other):
        for name in self.kept:
            setattr(self, name, copy.deepcopy(getattr(other, name)))
