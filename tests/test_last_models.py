"""FedDyn(last_models=True) evaluates the mean of all clients' last models, the curve its authors plot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines.stacked_runs import RAGGED, both
from problems import play, tiny_net

import fedkeel as fk

SIZES = [3, 8, 5, 11, 4]
WORK = fk.Work(epochs=1, batch_size=3, lr=0.05)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_all_is_the_mean_of_every_clients_last_model(weighting: Any) -> None:
    problem = tiny_net(SIZES)
    weights = np.array(SIZES if weighting == "samples" else [1] * len(SIZES), dtype=float)
    method = fk.FedDyn(0.4, last_models=True)
    for after in play(problem, method, rounds=5, cohort=2, work=WORK, weighting=weighting):
        last = np.stack([np.array(problem.x0)] * len(SIZES))
        for client, memory in after.memories.items():
            last[client] = memory.last.numpy()
        np.testing.assert_allclose(after.models["all"], weights @ last / weights.sum(), rtol=1e-12)
        assert after.row["accuracy/all"] >= 0


def test_it_changes_nothing_else_and_costs_a_vector_up_and_one_kept() -> None:
    problem, d = tiny_net(SIZES), len(tiny_net(SIZES).x0)
    plain, more = (
        play(problem, fk.FedDyn(0.4, last_models=wanted), rounds=3, cohort=3, work=WORK)[-1]
        for wanted in (False, True)
    )
    assert np.array_equal(plain.models["x"], more.models["x"])
    assert more.row["bytes_up"] - plain.row["bytes_up"] == 3 * d * 8
    assert more.row["bytes_down"] == plain.row["bytes_down"]
    assert "all" not in plain.models


def test_relaxed_and_stacked_runs_keep_it_too() -> None:
    method = fk.relaxed(fk.FedDyn(0.4, last_models=True), beta=0.1, aggregate="walk", gamma="end")
    assert both(RAGGED.task, RAGGED.federation, method, cohort=2, rounds=3) < 1e-10
