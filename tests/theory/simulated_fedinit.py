"""FedInit's theorems against runs with known constants.

Expectations over cohorts and minibatches are means over a few seeds. A case holds its measured values; the
bound is computed when asked for, so that a mutant of a formula can take its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from simulated import Problem, Trace, logistic, one_hessian, one_minimiser, run

import fedkeel as fk
from fedkeel.theory import fedinit as fi

SEEDS = 3
FEDINIT = 40


@dataclass(frozen=True)
class Compared:
    """A theorem, the federation's kind, whether all clients took part, what was measured, and the bound."""

    theorem: str
    kind: str
    full: bool
    measured: float
    bound: Callable[[], Any]


def seeds(full: bool, noisy: bool) -> range:
    """One run suffices where nothing is random."""
    return range(1 if full and not noisy else SEEDS)


@dataclass(frozen=True)
class Relaxed:
    """A run of FedInit: means over the seeds of what its theorems bound, and of the product they drop."""

    run: fi.RelaxedRun
    problem: Problem
    gradient2: float
    delta: float
    gap: float
    dropped: float
    dropped_largest: float


def relaxed(problem: Problem, base: fi.RelaxedRun, batch_size: int | None) -> Relaxed:
    """Run FedInit as the theorems have it: K steps of η, N of C clients, T rounds."""
    work = fk.Work(steps=base.K, lr=base.eta, batch_size=batch_size)
    traces = [
        run(problem, fk.FedInit(base.beta), rounds=base.T, cohort=base.N, work=work, seed=seed)
        for seed in seeds(base.N == base.C, batch_size is not None)
    ]
    rounds = [[_before_round(problem, trace, t, base.beta) for t in range(base.T)] for trace in traces]
    mean = np.mean(rounds, axis=(0, 1))
    best = problem.f(problem.optimum())
    gap = float(np.mean([problem.f(trace.models[-1]) for trace in traces])) - best
    largest = float(np.mean(rounds, axis=0)[:, 2].max())
    return Relaxed(base, problem, float(mean[0]), float(mean[1]), max(gap, 0.0), float(mean[2]), largest)


def _before_round(problem: Problem, trace: Trace, t: int, beta: float) -> tuple[float, float, float]:
    """‖∇f‖², Δ and β⟨∇f, x − mean w_i⟩ before a round."""
    x, C = trace.models[t], len(problem.clients)
    gradient = problem.gradients(x).mean(axis=0)
    known = trace.memories[t - 1] if t else {}
    last = np.array([known[i].last.numpy() if i in known else problem.start for i in range(C)])
    apart = x - last
    return (
        float(gradient @ gradient),
        float((apart**2).sum(axis=1).mean()),
        beta * float(gradient @ apart.mean(axis=0)),
    )


def largest_rate(base: fi.RelaxedRun, bound: Callable[[fi.RelaxedRun], Any]) -> fi.RelaxedRun:
    """The run with the largest η, up to a factor 0.8, whose conditions on η hold."""
    rate = 1.0 / (base.K * base.L)
    while not all(c.holds for c in bound(replace(base, eta=rate)).conditions if "mean w_i" not in c.name):
        rate *= 0.8
    return replace(base, eta=rate)


def shape(rng: np.random.Generator, number: int) -> tuple[int, int, int, int, int]:
    """C, N, d, K, T: every other federation has all clients in every round."""
    C, d, K, T = (int(rng.integers(low, high)) for low, high in ((2, 7), (1, 4), (1, 4), (4, 8)))
    return C, C if number % 2 else int(rng.integers(1, C)), d, K, T


@cache
def variance_case(number: int) -> tuple[Relaxed, dict[str, float], float]:
    """Bounded variance: one Hessian (σ_g² and μ are exact) or logistic losses, some with minibatches."""
    rng = np.random.default_rng([1, number])
    C, N, d, K, T = shape(rng, number)
    noisy = number % 4 >= 2
    problem = logistic(rng, C, d) if noisy else one_hessian(rng, C, d)
    best = problem.optimum()
    if noisy:
        reach = [float(np.linalg.norm(x, axis=1).max()) for x, _ in problem.clients]
        noise = {"sigma_l2": max(reach) ** 2, "sigma_g2": float(np.mean(np.square(reach)))}
        mu = 0.0
    else:
        slopes = problem.gradients(problem.start)
        noise = {"sigma_l2": 0.0, "sigma_g2": float(((slopes - slopes.mean(axis=0)) ** 2).sum(axis=1).mean())}
        mu = 2 * float(np.linalg.eigvalsh(problem.hessian(0))[0])
    beta = float(rng.choice([0.0, rng.uniform(-0.9, 0.9)])) * fi.beta_limit_divergence(N, C)
    base = fi.RelaxedRun(
        beta=beta, eta=1.0, K=K, N=N, C=C, T=T, L=problem.L, D=problem.f(problem.start) - problem.f(best)
    )
    base = largest_rate(base, lambda r: fi.theorem_17(r, **noise))
    return relaxed(problem, base, 2 if noisy else None), noise, mu


@cache
def interpolation_case(number: int) -> tuple[Relaxed, dict[str, float], float]:
    """One minimiser: a and b exact; every third federation takes single samples."""
    rng = np.random.default_rng([2, number])
    C, N, d, K, T = shape(rng, number)
    problem = one_minimiser(rng, C, d)
    hessians = [problem.hessian(i) for i in range(C)]
    mean = np.mean(hessians, axis=0)
    b = max(float(np.linalg.norm(h @ np.linalg.inv(mean), 2)) for h in hessians)
    noisy = number % 3 == 0
    samples = [(x, h) for (xs, _), h in zip(problem.clients, hessians, strict=True) for x in xs]
    a = (
        max(float(np.linalg.norm(x) * np.linalg.norm(np.linalg.solve(h, x))) for x, h in samples)
        if noisy
        else 1.0
    )
    beta = float(rng.choice([0.0, rng.uniform(-0.9, 0.9)])) * fi.beta_limit_interpolation(N, C)
    base = fi.RelaxedRun(beta=beta, eta=1.0, K=K, N=N, C=C, T=T, L=problem.L, D=problem.f(problem.start))
    base = largest_rate(base, lambda r: fi.theorem_19(r, a=max(a, 1.0), b=max(b, 1.0)))
    constants = {"a": max(a, 1.0), "b": max(b, 1.0)}
    return relaxed(problem, base, 1 if noisy else None), constants, 2 * float(np.linalg.eigvalsh(mean)[0])


@cache
def stale_copies() -> Relaxed:
    """The counter-example of issue 13: identical quadratics without noise, 2 of 200 clients, β = 0."""
    x = np.eye(1)
    problem = Problem("quadratic", tuple((x, np.zeros(1)) for _ in range(200)), np.ones(1))
    base = fi.RelaxedRun(beta=0.0, eta=0.0025, K=2, N=2, C=200, T=400, L=1.0, D=0.5)
    return relaxed(problem, base, None)


def fedinit_cases() -> list[Compared]:
    """All theorems of FedInit on all their federations, the counter-example among them."""
    found = []
    for number in range(FEDINIT):
        found += _variance(*variance_case(number))
        found += _interpolation(*interpolation_case(number))
    quiet = {"sigma_l2": 0.0, "sigma_g2": 0.0}
    return [
        *found,
        *_variance(stale_copies(), quiet, 2.0),
        *_interpolation(stale_copies(), {"a": 1.0, "b": 1.0}, 2.0),
    ]


def _variance(one: Relaxed, noise: dict[str, float], mu: float) -> list[Compared]:
    head = (one.problem.kind, one.run.N == one.run.C)
    mean, largest = {**noise, "dropped": one.dropped}, {**noise, "dropped": one.dropped_largest}
    found = [
        Compared("FedInit 1", *head, one.gradient2, lambda: fi.theorem_1(one.run, **mean)),
        Compared("FedInit 17", *head, one.delta, lambda: fi.theorem_17(one.run, **mean)),
    ]
    if mu > 0:
        found.append(Compared("FedInit 4", *head, one.gap, lambda: fi.theorem_4(one.run, mu=mu, **largest)))
    return found


def _interpolation(one: Relaxed, ab: dict[str, float], mu: float) -> list[Compared]:
    head = (one.problem.kind, one.run.N == one.run.C)
    mean, largest = {**ab, "dropped": one.dropped}, {**ab, "dropped": one.dropped_largest}
    return [
        Compared("FedInit 6", *head, one.gradient2, lambda: fi.theorem_6(one.run, **mean)),
        Compared("FedInit 19", *head, one.delta, lambda: fi.theorem_19(one.run, **mean)),
        Compared("FedInit 9", *head, one.gap, lambda: fi.theorem_9(one.run, mu=mu, **largest)),
    ]
