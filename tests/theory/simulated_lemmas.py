"""FedInit's Lemmas 21 to 26 on random federations, the expectation over cohorts taken exactly.

Every cohort of N clients is enumerated, so a measured value is the expectation the lemma speaks of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np

from fedkeel.theory import fedinit as fi

FEDERATIONS = 240


@dataclass(frozen=True)
class Case:
    """A round of FedInit on quadratics: the run, the state before it, and what the round gave."""

    run: fi.RelaxedRun
    state: fi.RoundState
    a: float
    b: float
    V1: float
    V2: float
    delta: float
    shared: bool


def quadratics(rng, C: int, d: int, shared_optimum: bool):
    """Hessians and minimisers: one minimiser (interpolation), or one Hessian (σ_g is then constant)."""
    if shared_optimum:
        roots = [rng.normal(size=(d + 1, d)) for _ in range(C)]
        return [r.T @ r / (d + 1) + 0.2 * np.eye(d) for r in roots], [np.zeros(d)] * C
    root = rng.normal(size=(d + 1, d))
    return [root.T @ root / (d + 1)] * C, list(rng.normal(size=(C, d)))


@cache
def one_round(seed: int) -> Case:
    """Play one round from a random state, over all cohorts."""
    rng = np.random.default_rng(seed)
    shared = seed % 2 == 0
    C, d, K = int(rng.integers(2, 8)), int(rng.integers(1, 4)), int(rng.integers(1, 6))
    N = C if seed % 3 == 0 else int(rng.integers(1, C + 1))
    hessians, centres = quadratics(rng, C, d, shared)
    L = max(float(np.linalg.eigvalsh(h)[-1]) for h in hessians)
    mean = np.mean(hessians, axis=0)
    b = max(float(np.linalg.norm(h @ np.linalg.inv(mean), 2)) for h in hessians) if shared else 1.0
    run = fi.RelaxedRun(beta=float(rng.uniform(-0.3, 0.3)), eta=1.0, K=K, N=N, C=C, T=1, L=L, D=1.0)
    run = replace(run, eta=rng.uniform(0.05, 0.999) * largest_step(run))
    x = rng.normal(size=d)
    last = x + rng.choice([0.1, 1.0, 30.0]) * rng.normal(size=(C, d))
    if N == C:
        last += x - last.mean(axis=0)  # after a round of all clients the model is their mean
    return play(run, x, last, hessians, centres, b, shared)


def largest_step(run: fi.RelaxedRun) -> float:
    """The largest η that all lemmas allow."""
    root = (run.K - 1) * (2 * run.K - 1)
    limits = [1 / (2 * run.K * run.L), 0.48 / run.L]
    return min([*limits, 1 / (run.L * (6 * root) ** 0.5)] if root else limits)


def play(run, x, last, hessians, centres, b, shared) -> Case:
    slopes = np.array([h @ (x - c) for h, c in zip(hessians, centres, strict=True)])
    V1, ends, total = 0.0, [], np.zeros_like(x)
    for h, c, w in zip(hessians, centres, last, strict=True):
        y = x + run.beta * (x - w)
        for _ in range(run.K):
            V1 += float((y - x) @ (y - x)) / run.C
            gradient = h @ (y - c)
            total += gradient / run.C
            y = y - run.eta * gradient
        ends.append(y)
    V2s, deltas = [], []
    for cohort in combinations(range(run.C), run.N):
        new = np.mean([ends[i] for i in cohort], axis=0)
        held = np.array([ends[i] if i in cohort else last[i] for i in range(run.C)])
        V2s.append(float((new - x) @ (new - x)))
        deltas.append(float(((held - new) ** 2).sum(axis=1).mean()))
    state = fi.RoundState(
        delta=float(((last - x) ** 2).sum(axis=1).mean()),
        gradient2=float(slopes.mean(axis=0) @ slopes.mean(axis=0)),
        total2=float(total @ total),
        sigma_g2=float(((slopes - slopes.mean(axis=0)) ** 2).sum(axis=1).mean()),
    )
    return Case(run, state, 1.0, b, V1, float(np.mean(V2s)), float(np.mean(deltas)), shared)


LEMMAS = {
    "21": (fi.lemma_21, "V1"),
    "22": (fi.lemma_22, "V2"),
    "23": (fi.lemma_23, "delta"),
    "24": (fi.lemma_24, "V1"),
    "25": (fi.lemma_25, "V2"),
    "26": (fi.lemma_26, "delta"),
}


def compared(name: str, case: Case, form: str = "repaired") -> tuple[float, float]:
    """The measured value and the bound that is called guaranteed."""
    lemma, measured = LEMMAS[name]
    extra = {"a": case.a, "b": case.b} if int(name) >= 24 else {}
    return getattr(case, measured), lemma(case.run, case.state, form=form, **extra).guaranteed


def cases(name: str) -> list[Case]:
    found = [one_round(seed) for seed in range(FEDERATIONS)]
    return [case for case in found if case.shared] if int(name) >= 24 else found
