"""Random federations with known constants, run by fedkeel itself: serial engine, float64, tiny problems.

Three kinds of loss: quadratic (one Hessian and many minimisers, or many Hessians and one minimiser), linear,
logistic. Runs are cached, so that comparing them with another formula (a mutant) costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from problems import session_of
from torch import Tensor, nn

import fedkeel as fk


def half_square(output: Tensor, target: Tensor) -> Tensor:
    """½(x·w − y)²."""
    return 0.5 * ((output[..., 0] - target) ** 2).mean()


def linear_loss(output: Tensor, target: Tensor) -> Tensor:
    """x·w: the gradient is the mean of the samples, wherever the model is."""
    return output[..., 0].mean()


def logistic_loss(output: Tensor, target: Tensor) -> Tensor:
    """log(1 + exp(−y·x·w))."""
    return nn.functional.softplus(-target * output[..., 0]).mean()


LOSSES = {"quadratic": half_square, "linear": linear_loss, "logistic": logistic_loss}


@dataclass(frozen=True)
class Problem:
    """A kind of loss, each client's samples (x, y), and where the run starts."""

    kind: str
    clients: tuple[tuple[np.ndarray, np.ndarray], ...]
    start: np.ndarray

    def hessian(self, i: int) -> np.ndarray:
        """A client's Hessian, or for logistic losses a bound on it."""
        x, _ = self.clients[i]
        return x.T @ x / len(x) * {"quadratic": 1.0, "logistic": 0.25, "linear": 0.0}[self.kind]

    @property
    def L(self) -> float:  # noqa: N802  the papers' name
        """The smoothness of the least smooth client."""
        return max(float(np.linalg.eigvalsh(self.hessian(i))[-1]) for i in range(len(self.clients)))

    def losses(self, w: np.ndarray, i: int) -> np.ndarray:
        """The loss of each of a client's samples."""
        x, y = self.clients[i]
        if self.kind == "quadratic":
            return 0.5 * (x @ w - y) ** 2
        return x @ w if self.kind == "linear" else np.logaddexp(0, -y * (x @ w))

    def f(self, w: np.ndarray) -> float:
        """The mean of the clients' losses."""
        return float(np.mean([self.losses(w, i).mean() for i in range(len(self.clients))]))

    def sample_gradients(self, w: np.ndarray, i: int) -> np.ndarray:
        """The gradient of each of a client's samples."""
        x, y = self.clients[i]
        if self.kind == "quadratic":
            return (x @ w - y)[:, None] * x
        return x if self.kind == "linear" else (-y / (1 + np.exp(y * (x @ w))))[:, None] * x

    def gradients(self, w: np.ndarray) -> np.ndarray:
        """Every client's gradient."""
        return np.array([self.sample_gradients(w, i).mean(axis=0) for i in range(len(self.clients))])

    def optimum(self) -> np.ndarray:
        """A minimiser of f, by Newton steps."""
        w = np.zeros_like(self.start)
        for _ in range(60):
            curve = np.mean([self._curvature(w, i) for i in range(len(self.clients))], axis=0)
            w = w - np.linalg.lstsq(curve, self.gradients(w).mean(axis=0), rcond=None)[0]
        return w

    def _curvature(self, w: np.ndarray, i: int) -> np.ndarray:
        x, y = self.clients[i]
        if self.kind == "quadratic":
            return x.T @ x / len(x)
        p = 1 / (1 + np.exp(-y * (x @ w)))
        return (x.T * (p * (1 - p))) @ x / len(x)

    def task(self) -> fk.Task:
        """The model x·w."""
        model = nn.Linear(len(self.start), 1, bias=False).double()
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(self.start)[None])
        return fk.Task(model, LOSSES[self.kind], {})


@dataclass(frozen=True)
class Trace:
    """A run: the models x_0 … x_T, the clients' memories after every round, the rows."""

    models: np.ndarray
    memories: tuple[dict[int, Any], ...]
    rows: tuple[dict[str, Any], ...]


def run(
    problem: Problem,
    method: fk.Algorithm,
    *,
    rounds: int,
    cohort: int,
    work: fk.Work,
    seed: int = 0,
    probes: Sequence[Any] = (),
) -> Trace:
    """Run fedkeel and keep every round's model and memories."""
    session = session_of(
        problem.task(),
        fk.Federation.from_arrays(list(problem.clients)),
        method,
        rounds=rounds,
        cohort=cohort,
        work=work,
        seed=seed,
        engine="serial",
        threads=1,
        eval_every=rounds,
        probes=probes,
    )
    models, memories = [problem.start], []
    with closing(session):
        for _ in session.rounds():
            models.append(method.models(session.state.server)["x"].double().numpy().copy())
            memories.append({client: kept.method for client, kept in session.store.items()})
    return Trace(np.array(models), tuple(memories), tuple(session.history))


def one_hessian(rng: np.random.Generator, C: int, d: int) -> Problem:
    """Quadratics with one Hessian and different minimisers: σ_g² is the same at every model."""
    x = rng.normal(size=(d + 2, d))
    return Problem("quadratic", tuple((x, rng.normal(size=d + 2)) for _ in range(C)), rng.normal(size=d))


def one_minimiser(rng: np.random.Generator, C: int, d: int) -> Problem:
    """Quadratics with different Hessians and one minimiser: interpolation."""
    goal, clients = rng.normal(size=d), []
    for _ in range(C):
        basis, _ = np.linalg.qr(rng.normal(size=(d, d)))
        x = math.sqrt(d) * np.diag(np.sqrt(rng.uniform(0.2, 0.5, d))) @ basis.T
        clients.append((x, x @ goal))
    return Problem("quadratic", tuple(clients), np.zeros(d))


def logistic(rng: np.random.Generator, C: int, d: int, samples: int = 6) -> Problem:
    """Logistic losses with random labels, so that the optimum is finite."""
    data = [(rng.normal(size=(samples, d)), rng.choice([-1.0, 1.0], size=samples)) for _ in range(C)]
    return Problem("logistic", tuple(data), np.zeros(d))


def linear(rng: np.random.Generator, C: int, d: int, samples: int = 3) -> Problem:
    """Linear losses: constant gradients, the worst case of stability."""
    data = [
        (rng.normal(size=(1, d)) + 0.3 * rng.normal(size=(samples, d)), np.zeros(samples)) for _ in range(C)
    ]
    return Problem("linear", tuple(data), np.zeros(d))
