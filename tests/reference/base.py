"""The frame of a method: what it keeps, and where it reads and writes it."""

import copy

import numpy as np


class Method:
    """A method keeps the model `x` and the attributes named in `kept`; dictionaries there are by client.

    `client(local, i, x, start)` walks from `start`, updates client i's memory, and returns (upload, end
    model); x is the model that was broadcast. `server(mean, share)` takes the weighted mean of the uploads,
    to which the round loop has added the end model, `mean["end"]`.
    """

    kept = ()
    sizes = ()  # of all clients, in samples
    gamma_from_end = False  # relaxed(aggregate="walk", gamma="end"): γ is the mean of the end models

    def __init__(self, x0):
        self.x = np.array(x0, dtype=np.float64)
        self.zero = np.zeros_like(self.x)

    def relative_size(self, i):
        """Client i's number of samples over the mean of all clients, the authors' weight_list[i]."""
        return self.sizes[i] * len(self.sizes) / sum(self.sizes)

    def broadcast(self):
        return self.x

    def state(self):
        """Copies of everything kept."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self.kept}

    def adopt(self, other):
        """Take over all that another instance of the same method kept."""
        for name in self.kept:
            setattr(self, name, copy.deepcopy(getattr(other, name)))
