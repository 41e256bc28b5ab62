"""Identities of `algorithms.md`: what must hold whatever the numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import half_square, play, quadratic, runner_of, settings_of, tiny_net
from selecting import slow

import fedkeel as fk

WORK = fk.Work(epochs=2, batch_size=3, lr=0.08, lr_decay=0.9, weight_decay=0.02)
RAGGED = [3, 8, 5, 11, 4, 7]


@pytest.mark.parametrize(
    "algorithm",
    [
        fk.FedProx(0.0),
        fk.FedDyn(regularize=False, compensate=False),
        fk.FedSAGD(0.0, 0.0, 0.0),
        fk.FedCM(1.0),
        fk.FedANAG(0.0),
        fk.MimeLite(0.0),
        fk.FedAvgM(0.0),
        fk.FedACG(0.0, 0.0),
        fk.FedLNAG(0.0),
        fk.FedLNAG(0.0, carry=False),
        fk.FedInit(0.0),
        fk.relaxed(fk.FedAvg(), 0.0, aggregate="walk"),
        fk.relaxed(fk.FedAvg(), fk.Decayed(0.0, 0.9)),
        fk.relaxed(fk.FedAvg(), fk.Adaptive(0.0)),
        fk.sharp(fk.FedAvg(), 0.0),
        fk.FedSAM(0.0),
        fk.stages((fk.FedAvg(), 2), fk.FedAvg()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [torch.float32, *slow(torch.float64)])
def test_is_fedavg_bit_for_bit(algorithm: Any, dtype: torch.dtype) -> None:
    problem = tiny_net(RAGGED)
    problem = problem._replace(task=fk.Task(problem.task.model.to(dtype)))
    plain = play(problem, fk.FedAvg(), rounds=5, cohort=3, work=WORK)
    other = play(problem, algorithm, rounds=5, cohort=3, work=WORK)
    for ours, theirs in zip(other, plain, strict=True):
        np.testing.assert_array_equal(ours.models["x"], theirs.models["x"])


def test_nova_is_fedavg_with_equal_sizes() -> None:
    problem = tiny_net([6] * 5)
    plain = play(problem, fk.FedAvg(), rounds=5, cohort=3, work=WORK)
    nova = play(problem, fk.FedNova(), rounds=5, cohort=3, work=WORK)
    np.testing.assert_allclose(nova[-1].models["x"], plain[-1].models["x"], rtol=1e-12)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("cohort", [2, *slow(6)])
@pytest.mark.parametrize("option", ["I", "II"])
def test_c_is_the_mean_of_all_c_i_after_every_round(option: Any, cohort: int, weighting: Any) -> None:
    problem = tiny_net(RAGGED)
    weights = np.array(RAGGED, dtype=float) if weighting == "samples" else np.ones(6)
    for after in play(
        problem, fk.SCAFFOLD(0.7, option), rounds=8, cohort=cohort, work=WORK, weighting=weighting
    ):
        total = sum(weights[i] * memory.c_i.numpy() for i, memory in after.memories.items())
        np.testing.assert_allclose(total / weights.sum(), after.server.c.numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("cohort", [2, *slow(6)])
def test_h_is_the_mean_of_all_h_i_after_every_round(cohort: int, weighting: Any) -> None:
    problem = tiny_net(RAGGED)
    weights = np.array(RAGGED, dtype=float) if weighting == "samples" else np.ones(6)
    for after in play(problem, fk.FedDyn(0.3), rounds=8, cohort=cohort, work=WORK, weighting=weighting):
        total = sum(weights[i] * memory.h_i.numpy() for i, memory in after.memories.items())
        np.testing.assert_allclose(total / weights.sum(), after.server.h.numpy(), rtol=1e-12, atol=1e-15)


def test_equation_10_of_fedinit() -> None:
    """x_{t+1} − w_i = β(w_i,prev − x_t) + (x_{t+1} − x_t) + Σ lr·(g + wd·y), over the training's minibatches.

    The models x and w_i come from the training, the gradients g from the reference; a client that was not
    drawn in some rounds starts from the end model that it kept.
    """
    beta, problem = 0.2, tiny_net(RAGGED)
    run: dict[str, Any] = {"rounds": 8, "cohort": 3, "work": WORK}
    settings = settings_of(problem.task, problem.federation, fk.FedInit(beta), **run)
    x, last = problem.x0, dict.fromkeys(range(len(RAGGED)), problem.x0)
    played = play(problem, fk.FedInit(beta), **run)
    assert len({frozenset(after.row["cohort"]) for after in played}) > 1
    for round, after in enumerate(played):
        following, ends = after.models["x"], {i: after.memories[i].last.numpy() for i in after.row["cohort"]}
        for i, w_i in ends.items():
            X, Y = problem.clients[i]
            y, walked = x + beta * (x - last[i]), np.zeros_like(x)
            for batch in runner_of(settings).minibatches(round, i):
                direction = problem.reference.grad(y, X[batch], Y[batch]) + WORK.weight_decay * y
                y, walked = y - after.row["lr"] * direction, walked + after.row["lr"] * direction
            np.testing.assert_allclose(
                following - w_i, beta * (last[i] - x) + (following - x) + walked, rtol=1e-10, atol=1e-12
            )
        np.testing.assert_allclose(following, np.mean(list(ends.values()), axis=0), rtol=1e-12)
        x, last = following, last | ends


@pytest.mark.parametrize("algorithm", [fk.FedACG(0.7, 0.01), fk.relaxed(fk.FedACG(0.7, 0.01), 0.2)], ids=repr)
def test_fedacg_lands_on_the_mean_end_model(algorithm: Any) -> None:
    watched = fk.relaxed(fk.FedACG(0.7, 0.01), 0.0) if isinstance(algorithm, fk.FedACG) else algorithm
    for after in play(tiny_net(RAGGED), watched, rounds=6, cohort=3, work=WORK):
        ends = [after.memories[i].last.numpy() for i in after.row["cohort"]]
        np.testing.assert_allclose(after.models["x"], np.mean(ends, axis=0), rtol=1e-12)


def test_fedanag_recovers_the_mean_gradient_of_one_step() -> None:
    """m ← βm + mean gradient exactly, when K = 1 and there is no weight decay."""
    beta, problem = 0.6, quadratic(RAGGED)
    work = fk.Work(steps=1, lr=0.05)
    m, x = np.zeros_like(problem.x0), problem.x0
    for after in play(problem, fk.FedANAG(beta), rounds=5, cohort=4, work=work):
        gradients = [problem.reference.grad(x, *problem.clients[i]) for i in after.row["cohort"]]
        m = beta * m + np.mean(gradients, axis=0)
        np.testing.assert_allclose(after.server.m.numpy(), m, rtol=1e-11)
        x = after.models["x"]


@cache
def distance_to_optimum(algorithm: Any, rounds: int) -> float:
    """Train on heterogeneous least squares and return how far from the known optimum it ends."""
    problem = quadratic([9, 7, 8, 6], seed=3)
    work = fk.Work(steps=5, lr=0.25)
    given = {"rounds": rounds, "cohort": 4, "work": work, "eval_every": rounds, "engine": "serial"}
    result = flat.train(problem.task, problem.federation, algorithm, **given)
    return float(np.abs(result.server.x.numpy() - problem.reference.optimum(problem.clients)).max())


@pytest.mark.slow(1.2)
@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [(fk.SCAFFOLD(), 45), (fk.FedDyn(0.4), 110), (fk.FedDyn(1.0), 55), (fk.relaxed(fk.SCAFFOLD(), 0.05), 45)],
    ids=repr,
)
def test_reaches_the_optimum_that_fedavg_misses(algorithm: Any, rounds: int) -> None:
    assert distance_to_optimum(algorithm, rounds) < 1e-8
    assert distance_to_optimum(fk.FedAvg(), 45) > 1e-3


def test_loss_is_half_a_square() -> None:
    assert float(half_square(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))) == 12.5


def test_mofedsam_fedgamma_and_lookahead_are_aliases() -> None:
    assert fk.MoFedSAM(0.3, 0.9, rho=0.2) == fk.sharp(fk.FedCM(0.3, 0.9), 0.2)
    assert fk.FedGamma(0.9, rho=0.2) == fk.sharp(fk.SCAFFOLD(0.9), 0.2)
    assert fk.FedInit(0.2) == fk.relaxed(fk.FedAvg(), 0.2)
