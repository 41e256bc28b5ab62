"""Methods with a client memory that corrects the drift: SCAFFOLD, FedDyn, FedSpeed, FedSMOO."""

from .base import Method
from .local import ascend


class SCAFFOLD(Method):
    """Karimireddy et al.: control variates c (server) and c_i (client)."""

    kept = ("c", "c_i")

    def __init__(self, x0, server_lr=1.0, option="II", by_size=False):
        super().__init__(x0)
        assert option in ("I", "II")
        self.server_lr, self.option, self.by_size = server_lr, option, by_size
        self.c, self.c_i = self.zero, {}

    def client(self, local, i, x, start):
        c, c_i = self.c, self.c_i.get(i, self.zero)
        w = self.relative_size(i) if self.by_size else 1.0
        y = start
        for k in local.batches:
            y = local.step(y, local.cut(local.g(y, k) - c_i + c / w))
        second = c_i - c + (start - y) / local.length
        c_new = local.full_gradient(x) if self.option == "I" else second
        self.c_i[i] = c_new
        return {"D": y - x, "dc": (c_new - c_i) * w}, y

    def server(self, mean, share):
        self.x = self.x + self.server_lr * mean["D"]
        self.c = self.c + share * mean["dc"]


class FedDyn(Method):
    """Acar et al.: a linear term −⟨h_i, y⟩ and a quadratic one; x is corrected by h/α."""

    kept = ("h", "h_i", "gamma", "last")

    def __init__(self, x0, alpha=0.1, regularize=True, compensate=True, by_size=False):
        super().__init__(x0)
        self.x0, self.last = self.x, {}  # every client's last model; x0 for those that never took part
        self.by_size = by_size
        self.alpha, self.regularize, self.compensate = alpha, regularize, compensate
        self.h, self.h_i, self.gamma = self.zero, {}, self.x

    def client(self, local, i, x, start):
        h_i, a = self.h_i.get(i, self.zero), self.alpha
        if self.by_size:
            a = self.alpha / self.relative_size(i)
        y = start
        for k in local.batches:
            g = local.g(y, k)
            if self.regularize:
                y = local.step(y, local.cut(g - h_i - a * x) + a * y)
            else:
                y = local.step(y, local.cut(g))
        self.h_i[i] = h_i - a * (y - x)
        self.last[i] = y
        return {"D": y - x}, y

    def server(self, mean, share):
        self.h = self.h - self.alpha * share * mean["D"]
        self.gamma = mean["end"] if self.gamma_from_end else self.x + mean["D"]
        self.x = self.gamma - self.h / self.alpha if self.compensate else self.gamma


class FedSpeed(Method):
    """Sun et al.: a prox-correction ĝ_i, and a gradient blended with one at a shifted point."""

    kept = ("g_i", "h")

    def __init__(self, x0, alpha=0.1, rho=0.1, blend=1.0, correction="cohort"):
        super().__init__(x0)
        self.lam, self.rho, self.blend = 1.0 / alpha, rho, blend
        self.g_i, self.h, self.correction = {}, self.zero, correction

    def client(self, local, i, x, start):
        g_i, lam = self.g_i.get(i, self.zero), self.lam
        y = start
        for k in local.batches:
            here = local.plain(y, k)
            there = local.plain(y + ascend(here, self.rho), k)
            g = local.trim((1 - self.blend) * here + self.blend * there)
            y = local.step(y, local.cut(g - g_i - x / lam) + y / lam)
        g_i = g_i - (y - x) / lam
        self.g_i[i] = g_i
        return {"D": y - x, "amended": y - x - lam * g_i, "amended_end": y - lam * g_i}, y

    def server(self, mean, share):
        if self.correction == "all":
            self.h = self.h - share * mean["D"] / self.lam
            gamma = mean["end"] if self.gamma_from_end else self.x + mean["D"]
            self.x = gamma - self.lam * self.h
            return
        self.x = mean["amended_end"] if self.gamma_from_end else self.x + mean["amended"]


class FedSMOO(Method):
    """Sun et al.: FedDyn whose SAM shifts are themselves held together by a second dual μ_i."""

    kept = ("h", "s", "h_i", "mu_i")

    def __init__(self, x0, alpha=0.1, rho=0.1):
        super().__init__(x0)
        self.alpha, self.rho = alpha, rho
        self.h, self.s, self.h_i, self.mu_i = self.zero, self.zero, {}, {}

    def client(self, local, i, x, start):
        h_i, mu, a = self.h_i.get(i, self.zero), self.mu_i.get(i, self.zero), self.alpha
        y = start
        for k in local.batches:
            e = ascend(local.plain(y, k) - mu - self.s, self.rho)
            mu = mu + e - self.s
            g = local.trim(local.plain(y + e, k))
            y = local.step(y, local.cut(g - h_i - a * x) + a * y)
        self.h_i[i] = h_i - a * (y - x)
        self.mu_i[i] = mu
        return {"D": y - x, "mu": mu}, y

    def server(self, mean, share):
        self.h = self.h - self.alpha * share * mean["D"]
        gamma = mean["end"] if self.gamma_from_end else self.x + mean["D"]
        self.x = gamma - self.h / self.alpha
        self.s = ascend(mean["mu"], self.rho)
