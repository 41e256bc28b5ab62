"""Methods whose server only averages: FedAvg, FedProx, FedNova, FedSAM, FedNTD, MOON."""

import numpy as np

from .base import Method
from .local import ascend
from .problems import softmax

COSINE_GUARD = 1e-8


class FedAvg(Method):
    """McMahan et al.: plain local SGD; x ← x + η_g · mean(end − x)."""

    def __init__(self, x0, server_lr=1.0):
        super().__init__(x0)
        self.server_lr = server_lr

    def client(self, local, i, x, start):
        y = start
        for k in local.batches:
            y = local.step(y, local.cut(local.g(y, k)))
        return {"D": y - x}, y

    def server(self, mean, share):
        self.x = self.x + self.server_lr * mean["D"]


class FedProx(FedAvg):
    """Li et al.: the local loss gains μ/2·‖y − x‖²."""

    def __init__(self, x0, mu=0.01, server_lr=1.0):
        super().__init__(x0, server_lr)
        self.mu = mu

    def client(self, local, i, x, start):
        y = start
        for k in local.batches:
            y = local.step(y, local.cut(local.g(y, k) - self.mu * x) + self.mu * y)
        return {"D": y - x}, y


class FedNova(Method):
    """Wang et al.: average the moves per unit of η‖a_i‖₁, then go the mean of that."""

    def __init__(self, x0, mu=0.0):
        super().__init__(x0)
        self.mu = mu

    def client(self, local, i, x, start):
        y = start
        for k in local.batches:
            y = local.step(y, local.cut(local.g(y, k) - self.mu * x) + self.mu * y)
        reach = local.reach(self.mu)
        return {"normalised": (y - x) / reach, "reach": reach}, y

    def server(self, mean, share):
        self.x = self.x + mean["reach"] * mean["normalised"]


class FedSAM(FedAvg):
    """Qu et al.: each gradient is taken at y + ρ·g/‖g‖."""

    def __init__(self, x0, rho=0.1, server_lr=1.0):
        super().__init__(x0, server_lr)
        self.rho = rho

    def client(self, local, i, x, start):
        y = start
        for k in local.batches:
            e = ascend(local.plain(y, k), self.rho)
            g = local.trim(local.plain(y + e, k))
            y = local.step(y, local.cut(g))
        return {"D": y - x}, y


def not_true(logits, Y):
    """The logits without the true class of each row: (samples, classes − 1)."""
    keep = np.arange(logits.shape[1])[None, :] != Y[:, None]
    return logits[keep].reshape(len(Y), -1)


def not_true_loss(student, teacher, Y, beta, tau):
    """β·τ²·mean over samples of KL(teacher ‖ student), over the classes other than the true one."""
    p = softmax(not_true(teacher, Y) / tau)
    q = softmax(not_true(student, Y) / tau)
    return beta * tau**2 * (p * (np.log(p) - np.log(q))).sum(axis=1).mean()


def not_true_grad(student, teacher, Y, beta, tau):
    """The derivative of `not_true_loss` by the student's logits: β·τ·(q − p)/samples, 0 at the truth."""
    p = softmax(not_true(teacher, Y) / tau)
    q = softmax(not_true(student, Y) / tau)
    d = np.zeros_like(student)
    d[np.arange(student.shape[1])[None, :] != Y[:, None]] = (beta * tau * (q - p) / len(Y)).ravel()
    return d


class FedNTD(FedAvg):
    """Lee et al.: the broadcast model teaches the classes that are not the true one."""

    def __init__(self, x0, beta=1.0, tau=1.0, server_lr=1.0):
        super().__init__(x0, server_lr)
        self.beta, self.tau = beta, tau

    def client(self, local, i, x, start):
        net = local.problem

        def distil(y, X, Y):
            d = not_true_grad(net.logits(y, X), net.logits(x, X), Y, self.beta, self.tau)
            return net.backprop(y, X, d)

        y = start
        for k in local.batches:
            y = local.step(y, local.cut(local.g(y, k, distil)))
        return {"D": y - x}, y


def cosine(a, b):
    """The cosine of each pair of rows, each norm at least 1e-8."""
    norm_a = np.maximum(np.linalg.norm(a, axis=1), COSINE_GUARD)
    norm_b = np.maximum(np.linalg.norm(b, axis=1), COSINE_GUARD)
    return (a * b).sum(axis=1) / (norm_a * norm_b)


def cosine_grad(a, b):
    """The derivative of `cosine` by a, row by row."""
    length = np.linalg.norm(a, axis=1, keepdims=True)
    norm_a = np.maximum(length, COSINE_GUARD)
    norm_b = np.maximum(np.linalg.norm(b, axis=1, keepdims=True), COSINE_GUARD)
    turn = np.where(length > COSINE_GUARD, cosine(a, b)[:, None] * a / norm_a**2, 0.0)
    return b / (norm_a * norm_b) - turn


def contrast_loss(z_y, z_x, z_last, mu, tau):
    """MOON's μ·mean(−log(e^{cos(y,x)/τ} / (e^{cos(y,x)/τ} + e^{cos(y,last)/τ})))."""
    towards, away = cosine(z_y, z_x) / tau, cosine(z_y, z_last) / tau
    return mu * np.log1p(np.exp(away - towards)).mean()


def contrast_grad(z_y, z_x, z_last, mu, tau):
    """The derivative of `contrast_loss` by z_y."""
    towards, away = cosine(z_y, z_x) / tau, cosine(z_y, z_last) / tau
    wrong = 1.0 / (1.0 + np.exp(towards - away))  # the probability of the wrong one of the two
    pull = cosine_grad(z_y, z_last) - cosine_grad(z_y, z_x)
    return mu * wrong[:, None] * pull / tau / len(z_y)


class MOON(FedAvg):
    """Li et al.: draw the features to the broadcast model's, away from the last local model's."""

    kept = ("last_i",)

    def __init__(self, x0, mu=1.0, tau=0.5, server_lr=1.0):
        super().__init__(x0, server_lr)
        self.mu, self.tau = mu, tau
        self.last_i = {}

    def client(self, local, i, x, start):
        net = local.problem
        last = self.last_i.get(i, x)

        def contrast(y, X, Y):
            z_y, z_x, z_last = net.features(y, X), net.features(x, X), net.features(last, X)
            return net.backprop(y, X, dfeatures=contrast_grad(z_y, z_x, z_last, self.mu, self.tau))

        y = start
        for k in local.batches:
            y = local.step(y, local.cut(local.g(y, k, contrast)))
        self.last_i[i] = y
        return {"D": y - x}, y
