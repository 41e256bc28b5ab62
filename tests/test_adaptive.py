"""`Adaptive`: relaxed initialisation that goes on where the model moves on, and stops where it wanders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import half_square
from selecting import slow
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.core.algorithm import Cohort
from fedkeel.tensors.streams import Stream

CLIENTS, SIZE = 100, 50


def linear(output: Tensor, target: Tensor) -> Tensor:
    return -(output * target).sum(dim=-1).mean()


def history(method: Any, targets: np.ndarray, loss: Any, lr: float, **options: Any) -> list[dict[str, Any]]:
    """Train one vector from zero; client i's loss has the minimiser, or the slope, targets[i]."""
    model = nn.Linear(1, SIZE, bias=False).double()
    nn.init.zeros_(model.weight)
    federation = fk.Federation.from_arrays([(np.ones((1, 1)), target[None]) for target in targets])
    work = fk.Work(steps=1, lr=lr)
    options = {"engine": "serial", "eval_every": 10**6, **options}
    return flat.train(fk.Task(model, loss, {}), federation, method, work=work, **options).history


@pytest.mark.slow(10)
@pytest.mark.parametrize("seed", [0, 1])
def test_where_one_of_a_hundred_clients_moves_the_model_it_stays_as_near_as_fedavg(seed: int) -> None:
    """Moves are noise around the clients' mean; a bound on the offset alone ends 11 % and more away."""
    targets = np.random.default_rng(seed).normal(size=(CLIENTS, SIZE))

    def far(method: fk.Algorithm) -> float:
        rows = history(method, targets, half_square, 0.01, rounds=1000, cohort=1, seed=seed)
        return float(np.mean([row["norm"] for row in rows[-250:]]))

    assert far(fk.FedInit(fk.Adaptive())) == pytest.approx(far(fk.FedAvg()), rel=0.02)


@pytest.mark.slow(3)
@pytest.mark.parametrize("cohort", [1, 10, 50])
def test_where_all_moves_agree_it_is_momentum(cohort: int) -> None:
    """On one slope the velocity is walk/(1 − ρ·(1 − N/C)): faster than FedAvg, and bounded."""
    targets = np.ones((CLIENTS, SIZE))
    share = cohort / CLIENTS
    engine = "serial" if cohort == 1 else "stacked-uncompiled"  # many clients at once: the same, and sooner

    def speed(method: fk.Algorithm, rounds: int) -> float:
        options = {"rounds": rounds, "cohort": cohort, "engine": engine}
        norms = [row["norm"] for row in history(method, targets, linear, 0.1, **options)]
        last = len(norms) // 4
        return (norms[-1] - norms[-1 - last]) / last

    plain = 0.1 * SIZE**0.5  # FedAvg's, in every round: the slope times the rate
    assert speed(fk.FedAvg(), rounds=8) == pytest.approx(plain, rel=1e-9)
    gain = speed(fk.FedInit(fk.Adaptive(0.5)), rounds=int(12 / share)) / plain
    assert gain == pytest.approx(1 / (1 - 0.5 * (1 - share)), rel=0.1)


@pytest.mark.parametrize("participation", [0.001, 0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("curvature", [1e-4, 0.01, 0.5, 1.0])
def test_the_mean_over_cohorts_is_stable_on_every_quadratic(participation: float, curvature: float) -> None:
    """x⁺ = (1−κ)(x + p·(x − w̄)), w̄⁺ = (1−p)·w̄ + p·x⁺, with the full β = N/C = p: every root lies inside."""
    p, k = participation, curvature
    step = np.array([[(1 - k) * (1 + p), -(1 - k) * p], [p * (1 - k) * (1 + p), 1 - p - p * (1 - k) * p]])
    assert max(abs(np.linalg.eigvals(step))) < 1


def test_the_mean_offset_is_the_servers_mean_move() -> None:
    """Averaged over the clients' draws, x − last is (1 − p)/p times M: what is tested is what is added."""
    rng = np.random.default_rng(0)
    p, rounds, clients, size = 0.1, 60, 4000, 3
    last, x, mean = np.zeros((clients, size)), np.zeros(size), np.zeros(size)
    for _ in range(rounds):
        move = rng.normal(size=size)
        x, mean = x + move, mean + p * (move - mean)
        last[rng.random(clients) < p] = x
    np.testing.assert_allclose(x - last.mean(0), (1 - p) / p * mean, atol=0.35)


def test_all_clients_in_every_round_is_fedavg() -> None:
    targets = np.random.default_rng(0).normal(size=(6, SIZE))
    adaptive, plain = (
        history(method, targets, half_square, 0.3, rounds=5, cohort=6)
        for method in (fk.FedInit(fk.Adaptive()), fk.FedAvg())
    )
    assert [row["norm"] for row in adaptive] == pytest.approx([row["norm"] for row in plain], rel=1e-12)


def test_beta_stays_between_zero_and_momentum_times_share() -> None:
    algorithm, cohort = fk.FedInit(fk.Adaptive(0.5)), Cohort(0, 30, 1, 0.2, Stream(0))
    server = algorithm.init(torch.zeros(4))
    betas = [float(server.beta)]
    for move in torch.randn(30, 4, generator=torch.Generator().manual_seed(0)) + 0.5:
        server = algorithm.aggregate(server, algorithm.Up(fk.FedAvg.Up(move), None), cohort)
        betas.append(float(server.beta))
    assert betas[:2] == [0, 0]  # one move agrees with nothing
    assert max(betas) == pytest.approx(0.5 * 0.2)
    assert min(betas) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["stacked-uncompiled", *slow("processes")])
def test_every_engine_gives_the_same(engine: str) -> None:
    targets = np.random.default_rng(0).normal(size=(12, SIZE)) + 1
    method = fk.relaxed(fk.stages((fk.FedDyn(), 4), fk.FedAvg()), fk.Adaptive(), aggregate="walk")
    options = {"rounds": 8, "cohort": 3, "workers": 2 if engine == "processes" else None}
    there, here = (
        history(method, targets, half_square, 0.1, **options | {"engine": one}) for one in (engine, "serial")
    )
    assert [row["norm"] for row in there] == pytest.approx([row["norm"] for row in here], rel=1e-10)


def test_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    targets = np.random.default_rng(0).normal(size=(12, SIZE)) + 1
    options = {"cohort": 2, "run_dir": tmp_path, "resume": True, "keep_client_states": True}
    history(fk.FedInit(fk.Adaptive()), targets, half_square, 0.1, rounds=6, **options)
    resumed = history(fk.FedInit(fk.Adaptive()), targets, half_square, 0.1, rounds=12, **options)
    whole = history(fk.FedInit(fk.Adaptive()), targets, half_square, 0.1, rounds=12, cohort=2)
    assert [row["norm"] for row in resumed] == [row["norm"] for row in whole]


@pytest.mark.parametrize("momentum", [-0.1, 1.1])
def test_a_momentum_that_cannot_hold_is_refused(momentum: float) -> None:
    with pytest.raises(fk.ConfigError, match=r"momentum"):
        fk.Adaptive(momentum)
