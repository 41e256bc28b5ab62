"""Plain local SGD, another server step: FedAvgM, FedAdam, FedYogi, FedAdagrad."""

import numpy as np

from .methods_average import FedAvg


class FedAvgM(FedAvg):
    """Hsu et al.: heavy-ball momentum on the server."""

    kept = ("v",)

    def __init__(self, x0, beta=0.9, server_lr=1.0):
        super().__init__(x0, server_lr)
        self.beta = beta
        self.v = self.zero

    def server(self, mean, share):
        self.v = self.beta * self.v + mean["D"]
        self.x = self.x + self.server_lr * self.v


class FedAdam(FedAvg):
    """Reddi et al.: Adam on the server; v₀ = τ² and no bias correction unless asked."""

    kept = ("m", "v")

    def __init__(self, x0, server_lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3, v0=None, bias_correction=False):
        super().__init__(x0, server_lr)
        self.beta1, self.beta2, self.tau, self.bias_correction = beta1, beta2, tau, bias_correction
        self.m, self.t = self.zero, 0
        self.v = np.full_like(self.x, tau**2 if v0 is None else v0)

    def server(self, mean, share):
        D = mean["D"]
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * D
        self.v = self.second_moment(D**2)
        m, v = self.m, self.v
        if self.bias_correction:
            m, v = m / (1 - self.beta1**self.t), self.unbiased(v)
        self.x = self.x + self.server_lr * m / (np.sqrt(v) + self.tau)

    def second_moment(self, square):
        return self.beta2 * self.v + (1 - self.beta2) * square

    def unbiased(self, v):
        return v / (1 - self.beta2**self.t)


class FedYogi(FedAdam):
    """Reddi et al.: v moves by a step of the square's own size."""

    def second_moment(self, square):
        return self.v - (1 - self.beta2) * square * np.sign(self.v - square)


class FedAdagrad(FedAdam):
    """Reddi et al.: v only grows, and a sum has no bias; β1 = 0."""

    def __init__(self, x0, server_lr=0.1, beta1=0.0, **knobs):
        super().__init__(x0, server_lr, beta1=beta1, **knobs)

    def second_moment(self, square):
        return self.v + square

    def unbiased(self, v):
        return v
