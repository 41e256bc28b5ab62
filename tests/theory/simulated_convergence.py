"""Beyond smoothness, Rethinking and FedInit's generalisation bounds against runs with known constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from simulated import Problem, linear, logistic, one_hessian, one_minimiser, run
from simulated_fedinit import Compared, fedinit_cases, seeds, shape

import fedkeel as fk
from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory import fedinit as fi
from fedkeel.theory import rethinking

SMOOTH = 16
FEDDYN = 12
SAMPLES = 10
DESCENT = 6


@cache
def smooth_case(number: int) -> tuple[bs.Constants, bs.Steps, np.ndarray, np.ndarray]:
    """FedAvg of all clients on quadratics with one minimiser: the losses and the drift, round by round."""
    rng = np.random.default_rng([3, number])
    C, d, K = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    problem = one_minimiser(rng, C, d)
    bottom = float(np.linalg.eigvalsh(np.mean([problem.hessian(i) for i in range(C)], axis=0))[0])
    tau1 = min(0.99, math.sqrt(2 * bottom))
    c = bs.Constants(
        a=float(rng.choice([0.0, 0.02])) * bottom,  # a and α may be larger than they must be
        b=problem.L / 2,
        alpha=float(rng.choice([0.0, 0.2])) * tau1,
        beta=problem.L,
        tau1=tau1,
        tau2=max(math.sqrt(2 * problem.L), tau1),
    )
    eta_l = rng.uniform(0.2, 0.95) * bs.largest_local_step(c, K)
    if number % 2:  # Section 5.2 has limits of its own
        limit = min(c.tau1 / (4 * K * c.tau2 * (2 * c.beta + c.alpha)), c.tau1**2 / (10 * c.b * c.tau2**2))
        eta_l = rng.uniform(0.2, 0.95) * min(limit, bs.largest_local_step(c, K))
    limit = min(bs.largest_global_step(c, K, eta_l), c.tau1**2 / (16 * c.b * c.tau2**2) / (K * eta_l))
    steps = bs.Steps(K=K, eta_l=eta_l, eta_g=rng.uniform(0.2, 0.95) * limit)
    work = fk.Work(steps=K, lr=steps.eta_l)
    trace = run(problem, fk.FedAvg(steps.eta_g), rounds=8, cohort=C, work=work, probes=[fk.probes.Drift()])
    return (
        c,
        steps,
        np.array([problem.f(x) for x in trace.models]),
        np.array([row["drift"] for row in trace.rows]),
    )


def smooth_cases() -> list[Compared]:
    """Theorem 4.7, Section 5.2 and Lemma 6.3 on every federation."""
    found = []
    for number in range(SMOOTH):
        c, steps, losses, drifts = smooth_case(number)
        last = len(losses) - 1
        found += [
            Compared(
                "Beyond smoothness 4.7",
                "quadratic",
                True,
                losses[-1],
                _theorem_4_7(c, steps, losses[0], last),
            ),
            Compared(
                "Beyond smoothness 6.3",
                "quadratic",
                True,
                drifts.max(),
                _drift(c, steps, losses[drifts.argmax()]),
            ),
        ]
        if number % 2:
            found.append(
                Compared(
                    "Beyond smoothness 5.2",
                    "quadratic",
                    True,
                    losses[-1],
                    _section_5_2(c, steps, losses[0], last),
                )
            )
    return found


def _theorem_4_7(c: bs.Constants, steps: bs.Steps, gap_0: float, r: int) -> Callable[[], Any]:
    return lambda: bs.theorem_4_7(c, steps, gap_0=gap_0, r=r)


def _section_5_2(c: bs.Constants, steps: bs.Steps, gap_0: float, r: int) -> Callable[[], Any]:
    return lambda: bs.deterministic(c, steps, gap_0=gap_0, r=r)


def _drift(c: bs.Constants, steps: bs.Steps, loss: float) -> Callable[[], Any]:
    return lambda: bs.drift(c, steps, loss=loss)


@cache
def descent_case(number: int) -> tuple[bs.Constants, float, np.ndarray]:
    """Proposition 5.1: one client, one full gradient per round."""
    rng = np.random.default_rng([6, number])
    problem = one_minimiser(rng, 1, int(rng.integers(1, 4)))
    values = np.linalg.eigvalsh(problem.hessian(0))
    tau = [min(0.99, math.sqrt(2 * float(values[0]))), math.sqrt(2 * float(values[-1]))]
    c = bs.Constants(a=0.0, b=float(values[-1]) / 2, alpha=0.0, beta=0.0, tau1=tau[0], tau2=max(tau))
    eta = rng.uniform(0.3, 0.99) * c.tau1**2 / (10 * c.b * c.tau2**2)
    trace = run(problem, fk.FedAvg(), rounds=6, cohort=1, work=fk.Work(steps=1, lr=eta))
    return c, eta, np.array([problem.f(x) for x in trace.models])


def descent_cases() -> list[Compared]:
    """Gradient descent."""
    found = []
    for number in range(DESCENT):
        c, eta, losses = descent_case(number)
        found.append(
            Compared("Beyond smoothness 5.1", "quadratic", True, losses[-1], _descent(c, eta, losses[0]))
        )
    return found


def _descent(c: bs.Constants, eta: float, gap_0: float) -> Callable[[], Any]:
    return lambda: bs.gradient_descent(c, eta=eta, gap_0=gap_0, t=6)


@cache
def feddyn_case(number: int) -> tuple[Problem, float, float, list[float], float, float]:
    """FedDyn with α = 30L and local problems solved to rounding: Φ_0, C_t, the mean gap of what is sent."""
    rng = np.random.default_rng([4, number])
    C, N, d, _, T = shape(rng, number)
    problem = logistic(rng, C, d) if number % 3 == 0 else one_hessian(rng, C, d)
    best, alpha = problem.optimum(), 30 * problem.L
    work = fk.Work(steps=14, lr=1 / (alpha + problem.L))
    at_best = problem.gradients(best)
    Cs, gaps, residual = [], [], 0.0
    for seed in seeds(N == C, False):
        trace = run(problem, fk.FedDyn(alpha), rounds=T, cohort=N, work=work, seed=seed)
        h = np.zeros_like(at_best)
        series = [float(((h - at_best) ** 2).sum(axis=1).mean())]
        for t in range(T):
            new = np.array(
                [trace.memories[t][i].h_i.numpy() if i in trace.memories[t] else h[i] for i in range(C)]
            )
            for i in trace.rows[t]["cohort"]:
                end = trace.models[t] + (h[i] - new[i]) / alpha
                residual = max(residual, float(np.linalg.norm(problem.gradients(end)[i] - new[i])))
            h = new
            series.append(float(((h - at_best) ** 2).sum(axis=1).mean()))
        Cs.append(series)
        gaps.append(np.mean([problem.f(x) for x in trace.models[:T]]) - problem.f(best))
    mean = list(np.mean(Cs, axis=0))
    kappa = rethinking.kappa(problem.L, alpha, clients=C, cohort=N)
    start = float(((problem.start - best) ** 2).sum())
    return problem, alpha, rethinking.phi_0(start, mean[0], kappa), mean[:T], float(np.mean(gaps)), residual


def feddyn_cases() -> list[Compared]:
    """D_T of Proposition 1."""
    found = []
    for number in range(FEDDYN):
        problem, alpha, phi, C, gap, residual = feddyn_case(number)
        found.append(
            Compared(
                "Rethinking D_T", problem.kind, number % 2 == 1, gap, _d_t(problem.L, alpha, phi, C, residual)
            )
        )
    return found


def _d_t(L: float, alpha: float, phi: float, C: list[float], residual: float) -> Callable[[], Any]:
    return lambda: rethinking.suboptimality(C, L=L, alpha=alpha, Phi_0=phi, residual=residual)


@cache
def replaced_sample_case(number: int) -> tuple[fi.Sampling, float, float, float, float, str]:
    """FedAvg with η = c/t and one sample per step: the largest E|f(w; z) − f(w̃; z)| over the samples z."""
    rng = np.random.default_rng([5, number])
    C, N, d, K, T = shape(rng, number)
    problem = (linear if number % 2 else logistic)(rng, C, d, samples=3)
    x, y = problem.clients[0]
    other = (np.concatenate([-x[:1], x[1:]]), y)
    second = replace(problem, clients=(other, *problem.clients[1:]))
    c = float(rng.uniform(0.02, 0.3))
    work = fk.Work(steps=K, lr=c, batch_size=1, schedule=fk.InverseTime())
    apart = [
        np.abs(
            _all_losses(
                problem,
                *(
                    run(p, fk.FedAvg(), rounds=T, cohort=N, work=work, seed=seed).models[-1]
                    for p in (problem, second)
                ),
            )
        )
        for seed in range(4)
    ]
    everything = np.concatenate([xs for xs, _ in problem.clients])
    reach = float(np.linalg.norm(everything, axis=1).max())
    length = reach * c * K * sum(1 / t for t in range(1, T + 1))  # how far a model can get
    U = max(reach * length, float(np.logaddexp(0, reach * length)))
    L = max(reach**2 / 4, 1e-3) if problem.kind == "logistic" else 1e-3
    sampling = fi.Sampling(N=N, C=C, S=3, K=K, T=T, c=c, L_G=reach)
    return sampling, L, 2 * U, reach, float(np.mean(apart, axis=0).max()), problem.kind


def _all_losses(problem: Problem, w: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.concatenate(
        [problem.losses(w, i) - problem.losses(other, i) for i in range(len(problem.clients))]
    )


def sample_cases() -> list[Compared]:
    """Theorems 12 and 15; for 15, a·b·L_G is the longest gradient."""
    found = []
    for number in range(SAMPLES):
        s, L, U, reach, measured, kind = replaced_sample_case(number)
        found += [
            Compared("FedInit 12", kind, s.N == s.C, measured, _theorem_12(s, L, U, reach)),
            Compared("FedInit 15", kind, s.N == s.C, measured, _theorem_15(s, L)),
        ]
    return found


def _theorem_12(s: fi.Sampling, L: float, U: float, spread: float) -> Callable[[], Any]:
    return lambda: fi.theorem_12(s, beta=0.0, L=L, U=U, sample_spread=spread)


def _theorem_15(s: fi.Sampling, L: float) -> Callable[[], Any]:
    return lambda: fi.theorem_15(s, betas=[0.0] * (s.T + 1), a=1.0, b=1.0, L=L)


def all_cases() -> list[Compared]:
    """Every comparison."""
    return [*fedinit_cases(), *smooth_cases(), *descent_cases(), *feddyn_cases(), *sample_cases()]
