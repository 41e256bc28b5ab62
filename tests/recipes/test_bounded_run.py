"""FedAvg with two steps stays under the repaired Theorem 4.7 wherever the theorem's conditions hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fedkeel as fk
from fedkeel.papers.reproduce.bounded_run import ProblemSettings, half_square, problem, run
from fedkeel.theory import beyond_smoothness as bs

pytestmark = pytest.mark.slow
SMALL = ProblemSettings(clients=3, samples=2, inputs=8, units=96, rounds=30, points=4, close=2)


@pytest.mark.slow(3)
@pytest.mark.parametrize("batch_size", [None, 1])
def test_a_wide_relu_network_stays_under_the_bound(batch_size):
    noisy = batch_size is not None
    outcome = run(
        ProblemSettings(**{**vars(SMALL), "batch_size": batch_size, "target": 0.5 if noisy else 0.1})
    )
    assert outcome.bound.holds
    assert all(line.loss <= line.bound * (1 + 1e-9) for line in outcome.lines)
    assert (outcome.floor > 0) == noisy
    losses = [line.loss for line in outcome.lines]
    assert losses[-1] < losses[0]
    c = outcome.constants
    assert outcome.lines[-1].bound == pytest.approx(
        (1 - bs.rate(c, outcome.steps)) ** SMALL.rounds * losses[0] + outcome.floor
    )


def test_the_network_is_not_smooth_and_has_more_weights_than_samples():
    task, federation = problem(SMALL)
    assert sum(p.numel() for p in task.model.parameters() if p.requires_grad) > 100 * len(federation.y)
    outcome = run(SMALL)
    assert outcome.found["L_pairs"] > 1.5 * outcome.found["L_power"]


def test_too_many_samples_are_refused():
    with pytest.raises(ValueError, match="6 samples in 4 dimensions: give inputs >="):
        problem(ProblemSettings(clients=3, samples=2, inputs=4))


def test_softplus_units_are_smooth_and_stay_under_the_bound_too():
    outcome = run(ProblemSettings(**{**vars(SMALL), "smooth": True}))
    assert outcome.bound.holds
    assert all(line.loss <= line.bound * (1 + 1e-9) for line in outcome.lines)
    assert outcome.found["L_pairs"] < 1.5 * outcome.found["L_power"]


def quadratic(spectrum, clients, seed):
    """Clients with the same eigenvalues in different bases and one minimiser: all constants are known."""
    rng = np.random.default_rng(seed)
    size = len(spectrum)
    goal = rng.normal(size=size)
    data, hessians = [], []
    for _ in range(clients):
        basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
        x = math.sqrt(size) * np.diag(np.sqrt(spectrum)) @ basis.T
        data.append((x, x @ goal))
        hessians.append(x.T @ x / size)
    model = nn.Linear(size, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    top = max(spectrum)
    bottom = min(top, float(np.linalg.eigvalsh(np.mean(hessians, axis=0))[0]))  # rounding may lift it above
    constants = bs.Constants(
        a=0, b=top / 2, alpha=0, beta=top, tau1=min(0.99, math.sqrt(2 * bottom)), tau2=math.sqrt(2 * top)
    )
    return fk.Task(model, half_square, {}), fk.Federation.from_arrays(data), constants, (data, goal)


def losses(task, federation, steps, rounds, batch_size=None, seed=0):
    result = fk.train(
        task,
        federation,
        fk.FedAvg(lr=steps.eta_g),
        rounds=rounds,
        cohort=len(federation),
        work=fk.Work(steps=steps.K, lr=steps.eta_l, batch_size=batch_size),
        seed=seed,
        execution=fk.Execution("serial"),
        evaluation=fk.Evaluation(on="clients"),
    )
    with torch.no_grad():
        x, y = federation.everything
        first = float(half_square(task.model(x), y))
    return np.array([first, *(row["loss"] for row in result.history)]), result


@settings(max_examples=12, deadline=None)
@given(
    spectrum=st.lists(st.floats(0.05, 2.0), min_size=2, max_size=5),
    clients=st.integers(1, 4),
    K=st.integers(1, 4),
    local=st.floats(0.05, 0.95),
    globally=st.floats(0.05, 0.95),
    seed=st.integers(0, 99),
)
def test_the_gap_stays_under_the_repaired_bound(spectrum, clients, K, local, globally, seed):
    task, federation, c, _ = quadratic(spectrum, clients, seed)
    eta_l = local * bs.largest_local_step(c, K)
    steps = bs.Steps(K=K, eta_l=eta_l, eta_g=globally * bs.largest_global_step(c, K, eta_l))
    measured, _ = losses(task, federation, steps, rounds=8)
    for r, loss in enumerate(measured):
        bound = bs.theorem_4_7(c, steps, gap_0=float(measured[0]), r=r)
        assert bound.holds
        assert loss <= bound.value * (1 + 1e-9)


def test_with_minibatches_the_mean_gap_stays_under_decay_and_floor():
    task, federation, quiet, (data, goal) = quadratic([0.4, 0.7, 1.0], 3, seed=1)
    distance = float(np.linalg.norm(goal))
    # E‖g_B − ∇f‖² for one sample a step, at any model within the first distance of the minimiser
    sigma2 = max(float(np.mean((x**2).sum(1) ** 2)) for x, _ in data) * distance**2
    c = bs.Constants(**{**vars(quiet), "sigma2": sigma2})
    eta_l = 0.3 * bs.largest_local_step(c, 2)
    steps = bs.Steps(K=2, eta_l=eta_l, eta_g=0.1 * bs.fastest_global_step(c, 2, eta_l))
    runs = [losses(task, federation, steps, 25, batch_size=1, seed=seed)[0] for seed in range(4)]
    mean = np.mean(runs, axis=0)
    bounds = [bs.theorem_4_7(c, steps, gap_0=float(mean[0]), r=r) for r in range(len(mean))]
    assert all(bound.holds for bound in bounds)
    assert all(loss <= bound.value for loss, bound in zip(mean, bounds, strict=True))
