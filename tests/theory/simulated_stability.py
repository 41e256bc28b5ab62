"""Table 1 of FedSAGD against runs: one client replaced, every method as we run it, all clients or some."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from simulated import Problem, linear, logistic, one_hessian, run

import fedkeel as fk
from fedkeel.theory import fedsagd as fs

METHODS = (
    *("FedAvg", "FedProx", "SCAFFOLD", "FedDyn", "FedLNAG", "FedAdam", "FedCM", "MimeLite", "FedANAG"),
    *("FedACG", "FedSAGD"),
)
PER_METHOD = 18


@dataclass(frozen=True)
class Replaced:
    """A method with its arguments, the run as Table 1 sees it, and the distance of the two models."""

    method: str
    arguments: tuple[tuple[str, float], ...]
    run: fs.StabilityRun
    kind: str
    full: bool
    measured: float

    def bound(self, form: str = "repaired") -> Any:
        """The method's row of Table 1."""
        return ROWS[self.method](self.run, dict(self.arguments), form)


def _row(name: str, **names: str) -> Any:
    def bound(run: fs.StabilityRun, arguments: dict[str, float], form: str) -> Any:
        return getattr(fs, name)(
            run, **{theirs: arguments[ours] for theirs, ours in names.items()}, form=form
        )

    return bound


ROWS = {  # the calculator's arguments by ours; looked up when called, so that a mutant can take its place
    "FedAvg": _row("fedavg", eta_g="lr"),
    "FedProx": _row("fedprox", lam="mu"),
    "SCAFFOLD": _row("scaffold", eta_g="lr"),
    "FedDyn": _row("feddyn", lam="alpha"),
    "FedLNAG": _row("fedlnag", beta="beta"),
    "FedAdam": _row("fedadam", tau="tau", eta_g="lr"),
    "FedCM": _row("fedcm", eta_g="lr"),
    "MimeLite": _row("mimelite", eta_g="lr"),
    "FedANAG": _row("fedanag", beta="beta", eta_g="lr"),
    "FedACG": _row("fedacg", lam="lam"),
    "FedSAGD": _row("fedsagd", beta="beta", lam="lam", mu="mu", eta_g="lr"),
}


def arguments(method: str, rng: np.random.Generator) -> dict[str, float]:
    """Random arguments of a method, its own defaults among them."""
    lr, beta = float(rng.choice([0.5, 1.0, 1.5])), float(rng.choice([0.3, 0.6, 0.9]))
    return {
        "FedAvg": {"lr": lr},
        "FedProx": {"mu": float(rng.choice([0.01, 0.5, 3.0]))},
        "SCAFFOLD": {"lr": lr},
        "FedDyn": {"alpha": float(rng.choice([0.05, 0.3, 2.0]))},
        "FedLNAG": {"beta": beta},
        "FedAdam": {"lr": 0.1 * lr, "beta1": beta, "tau": float(rng.choice([1e-3, 0.1]))},
        "FedCM": {"alpha": float(rng.choice([0.1, 0.5])), "lr": lr},
        "MimeLite": {"beta": beta, "lr": lr},
        "FedANAG": {"beta": beta, "lr": lr},
        "FedACG": {"lam": beta, "beta": float(rng.choice([2e-3, 1.0]))},
        "FedSAGD": {
            "beta": beta,
            "lam": float(rng.choice([0.0, 0.01, 2.0])),
            "mu": float(rng.choice([1e-3, 1.0])),
            "lr": 1.0,
        },
    }[method]


def replaced(problem: Problem, rng: np.random.Generator) -> Problem:
    """The same federation with the opposite of one client in its place: the largest change of its size."""
    x, y = problem.clients[0]
    other = (-x, y) if problem.kind == "linear" else (-x, -y) if rng.random() < 0.3 else (x, -y)
    return replace(problem, clients=(other, *problem.clients[1:]))


@cache
def case(method: str, number: int) -> Replaced:
    """One random federation of a method, run twice."""
    rng = np.random.default_rng([METHODS.index(method), number])
    C, d, K, T = (
        int(rng.integers(1, 5)),
        int(rng.integers(1, 4)),
        int(rng.integers(1, 5)),
        int(rng.integers(3, 7)),
    )
    N = C if number % 2 else int(rng.integers(1, C + 1))
    kind = ("linear", "logistic", "quadratic")[number % 3]
    if method == "MimeLite" and kind == "quadratic":  # its full gradients are never clipped
        kind = "linear"
    make = {"linear": linear, "logistic": logistic, "quadratic": one_hessian}[kind]
    problem = make(rng, C, d)
    eta = float(rng.choice([0.02, 0.1, 0.3]))
    theta = largest_gradient(problem)
    noisy = rng.random() < 0.5
    work = fk.Work(
        steps=K, lr=eta, batch_size=2 if noisy else None, clip=theta if kind == "quadratic" else None
    )
    return compared(method, arguments(method, rng), problem, replaced(problem, rng), work, N, T, theta)


def largest_gradient(problem: Problem) -> float:
    """Θ: the longest sample for linear and logistic losses; quadratics are clipped to it."""
    return max(float(np.linalg.norm(x, axis=1).max()) for x, _ in problem.clients)


def compared(
    method: str,
    given: dict[str, float],
    first: Problem,
    second: Problem,
    work: fk.Work,
    N: int,
    T: int,
    theta: float,
) -> Replaced:
    """Run both federations with the same seeds and take the mean distance of their last models."""
    C = len(first.clients)
    algorithm = getattr(fk, method)(**given)
    seeds = range(1 if N == C and work.batch_size is None else 2)
    ends = [
        [run(p, algorithm, rounds=T, cohort=N, work=work, seed=seed).models[-1] for p in (first, second)]
        for seed in seeds
    ]
    measured = float(np.mean([np.linalg.norm(one - other) for one, other in ends]))
    assert work.steps is not None
    table_run = fs.StabilityRun(theta=theta, eta_l=work.lr, K=work.steps, T=T, participation=N / C)
    return Replaced(method, tuple(given.items()), table_run, first.kind, N == C, measured)


@cache
def counter_example(method: str) -> Replaced:
    """Linear losses, one client replaced, 200 rounds: what the server adds and what momentum adds up."""
    given, C = {"FedDyn": ({"alpha": 0.1}, 10), "FedLNAG": ({"beta": 0.9}, 2)}[method]
    x = np.ones((1, 1))
    clients = tuple((x, np.zeros(1)) for _ in range(C))
    problem = Problem("linear", clients, np.zeros(1))
    other = replace(problem, clients=((-x, np.zeros(1)), *clients[1:]))
    return compared(method, given, problem, other, fk.Work(steps=1, lr=0.05), C, 200, 1.0)


@cache
def all_cases() -> tuple[Replaced, ...]:
    """Every random federation of every method, and the counter-examples of the rows that were wrong."""
    random = (case(method, number) for method in METHODS for number in range(PER_METHOD))
    return (*random, counter_example("FedDyn"), counter_example("FedLNAG"))
