"""Methods with a momentum in the local steps: FedCM, MimeLite, FedLNAG, FedANAG, FedACG, FedSAGD."""

from .base import Method


class FedCM(Method):
    """Xu et al.: each step mixes the gradient with last round's mean direction M."""

    kept = ("M",)

    def __init__(self, x0, alpha=0.1, server_lr=1.0):
        super().__init__(x0)
        self.alpha, self.server_lr = alpha, server_lr
        self.M = self.zero

    def client(self, local, i, x, start):
        a, M = self.alpha, self.M
        y = start
        for k in local.batches:
            y = local.step(y, local.cut(a * local.g(y, k) + (1 - a) * M))
        return {"D": y - x, "length": local.length}, y

    def server(self, mean, share):
        self.M = -mean["D"] / mean["length"]
        self.x = self.x + self.server_lr * mean["D"]


class MimeLite(Method):
    """Karimireddy et al.: momentum of full gradients at x, held fixed during the local steps."""

    kept = ("m",)

    def __init__(self, x0, beta=0.9, server_lr=1.0):
        super().__init__(x0)
        self.beta, self.server_lr = beta, server_lr
        self.m = self.zero

    def client(self, local, i, x, start):
        b, m = self.beta, self.m
        y = start
        for k in local.batches:
            y = local.step(y, local.cut((1 - b) * local.g(y, k) + b * m))
        return {"D": y - x, "full": local.full_gradient(x)}, y

    def server(self, mean, share):
        self.m = self.beta * self.m + (1 - self.beta) * mean["full"]
        self.x = self.x + self.server_lr * mean["D"]


class FedLNAG(Method):
    """Yu et al.: Nesterov's momentum in each client; the buffers are averaged like the models."""

    kept = ("m",)

    def __init__(self, x0, beta=0.9, carry=True, damped=False):
        super().__init__(x0)
        self.beta, self.carry, self.damped = beta, carry, damped
        self.m = self.zero

    def client(self, local, i, x, start):
        if self.damped:
            return self.as_printed(local, x, start)
        y, b = start, self.m
        for k in local.batches:
            direction = local.fix(local.cut(local.g(y, k))) + local.wd * y
            b = self.beta * b + direction
            y = y - local.rate() * (direction + self.beta * b)
        return {"D": y - x, "buffer": b}, y

    def as_printed(self, local, x, start):
        """FedSAGD's C.5: z looks ahead of w; m ← βm + (1−β)·g(z); w ← w − ηm. The walk is that of z."""
        b, m = self.beta, self.m
        rates = [*local.rates, None]
        z, w = start, start + rates[0] * b * m
        for j, k in enumerate(local.batches):
            g = local.fix(local.cut(local.g(z, k))) + local.wd * z
            last, m = m, b * m + (1 - b) * g
            if rates[j + 1] in (None, rates[j]):
                w = w - rates[j] * m
                z = w - rates[j] * b * m
            else:  # w is where z looks ahead from, with the rate of its step
                z = z + rates[j] * b * last - rates[j] * (1 + b) * m
                w = z + rates[j + 1] * b * m
        return {"D": z - x, "buffer": m}, z

    def server(self, mean, share):
        self.x = self.x + mean["D"]
        if self.carry:
            self.m = mean["buffer"]


class FedANAG(Method):
    """Zhang et al.: Nesterov's step with a global momentum m."""

    kept = ("m",)

    def __init__(self, x0, beta=0.9, server_lr=1.0):
        super().__init__(x0)
        self.beta, self.server_lr = beta, server_lr
        self.m = self.zero

    def client(self, local, i, x, start):
        b, m = self.beta, self.m
        y = start
        for k in local.batches:
            y = local.step(y, local.cut((1 + b) * local.g(y, k) + b**2 * m))
        return {"D": y - x, "length": local.length}, y

    def server(self, mean, share):
        b = self.beta
        self.m = b / (1 + b) * self.m - mean["D"] / ((1 + b) * mean["length"])
        self.x = self.x + self.server_lr * mean["D"]


class FedACG(Method):
    """Kim et al.: clients start at the looked-ahead model z = x + λm and are held near it."""

    kept = ("m",)

    def __init__(self, x0, lam=0.85, beta=2e-3):
        super().__init__(x0)
        self.lam, self.beta = lam, beta
        self.m = self.zero

    def broadcast(self):
        return self.x + self.lam * self.m

    def client(self, local, i, x, start):
        z = x
        y = start
        for k in local.batches:
            y = local.step(y, local.cut(local.g(y, k) - self.beta * z) + self.beta * y)
        return {"D": y - z}, y

    def server(self, mean, share):
        self.m = self.lam * self.m + mean["D"]
        self.x = self.x + self.m


class FedSAGD(Method):
    """The FedSAGD paper's Algorithm 1: a global momentum v and the hybrid proximal term."""

    kept = ("v",)

    def __init__(self, x0, beta=0.9, lam=0.01, mu=0.001, server_lr=1.0):
        super().__init__(x0)
        self.beta, self.lam, self.mu, self.server_lr = beta, lam, mu, server_lr
        self.v = self.zero

    def client(self, local, i, x, start):
        y = start
        for k in local.batches:
            m = self.beta * self.v + local.g(y, k)
            direction = local.cut(m - self.lam * x) + (self.lam + self.mu) * y
            y = local.step(y, direction)
        return {"D": y - x, "length": local.length}, y

    def server(self, mean, share):
        b = self.beta
        self.v = b / (1 + b) * self.v - mean["D"] / ((1 + b) * mean["length"])
        self.x = self.x + self.server_lr * mean["D"]
