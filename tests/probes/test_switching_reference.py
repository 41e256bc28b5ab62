"""The switching rule with a reference model sums C_0 … C_{T−1}, as Rethinking's (4) and (5) do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from problems import quadratic
from safetensors.torch import save_file
from torch import nn

import fedkeel as fk
from fedkeel.probes import Switching
from fedkeel.theory import rethinking

SIZES = [5, 3, 4]
WORK = fk.Work(steps=2, lr=0.1)
ALPHA = 0.3


@pytest.fixture
def reference(tmp_path: Path) -> str:
    """The optimum of the problem, saved."""
    problem = quadratic(SIZES)
    best = problem.reference.optimum(problem.clients)
    model = nn.Linear(4, 2).double()
    nn.utils.vector_to_parameters(torch.from_numpy(best), model.parameters())
    save_file(model.state_dict(), tmp_path / "best.safetensors")
    return str(tmp_path / "best.safetensors")


def curve(reference: str, method, *, cohort: int, rounds: int = 6, zeta: float | None = None) -> list[dict]:
    problem = quadratic(SIZES)
    result = fk.train(
        problem.task,
        problem.federation,
        method,
        rounds=rounds,
        cohort=cohort,
        work=WORK,
        seed=3,
        execution=fk.Execution("serial", threads=1),
        probes=[Switching(reference=reference, zeta=zeta)],
    )
    return result.history


def gaps_at(problem, w: np.ndarray) -> list[float]:
    best, grad = problem.reference.optimum(problem.clients), problem.reference.grad
    return [float(np.sum((grad(w, *c) - grad(best, *c)) ** 2)) for c in problem.clients]


def start() -> np.ndarray:
    model = quadratic(SIZES).task.model
    return nn.utils.parameters_to_vector(model.parameters()).detach().double().numpy()


def test_the_first_model_counts_as_c_0(reference: str) -> None:
    rows = curve(reference, fk.FedDyn(ALPHA), cohort=3)
    C = [float(np.mean(gaps_at(quadratic(SIZES), start()))), *(row["switching/C"] for row in rows)]
    expected = rethinking.switch_curve(C, L=0.0, alpha=ALPHA, zeta_=None).gain
    assert [row["switching/gain"] for row in rows] == pytest.approx(expected, rel=1e-9)


def test_it_does_not_fire_in_the_first_round_while_the_gap_shrinks(reference: str) -> None:
    rows = curve(reference, fk.FedDyn(ALPHA), cohort=3, zeta=1e-9)
    first = float(np.mean(gaps_at(quadratic(SIZES), start())))
    assert rows[0]["switching/C"] < first
    assert rows[0]["switching/gain"] < 0
    assert rows[0]["switching/round"] is None
    assert rows[0]["switching/D"] == pytest.approx(1e-9 + first / (2 * ALPHA))


def test_with_some_clients_per_round_the_sums_are_over_those_known(reference: str) -> None:
    """A client's gap before its first turn is that of the first model, for every round it missed."""
    rows = curve(reference, fk.FedDyn(ALPHA), cohort=1, rounds=8)
    at_start = gaps_at(quadratic(SIZES), start())
    history: dict[int, list[float]] = {}
    gap, before = {}, 0.0
    for T, row in enumerate(rows, start=1):
        (client,) = row["cohort"]
        known = {*gap, client}
        present = row["switching/C"] * len(known)
        rest = sum(value for i, value in gap.items() if i != client)
        for i in known:
            history.setdefault(i, [at_start[i]] * T)
        gap[client] = present - rest
        total = sum(sum(history[i]) for i in known) / len(known)
        gain = (T * row["switching/C"] - total) / (2 * ALPHA)
        assert row["switching/gain"] == pytest.approx(gain, rel=1e-9, abs=1e-9)
        for i in known:
            history[i].append(gap[i])
        before = present
    assert before > 0
    assert len(gap) == 3


def test_a_second_stage_has_a_c_0_of_its_own(reference: str) -> None:
    method = fk.stages((fk.FedAvg(), 2), fk.FedDyn(ALPHA))
    rows = curve(reference, method, cohort=3)
    assert [row["switching/C"] is None for row in rows] == [True, True, False, False, False, False]
    problem = quadratic(SIZES)
    plain = fk.train(
        problem.task,
        problem.federation,
        fk.FedAvg(),
        rounds=2,
        cohort=3,
        work=WORK,
        seed=3,
        execution=fk.Execution("serial", threads=1),
    )
    C_0 = float(np.mean(gaps_at(problem, plain.server.x.double().numpy())))
    C = [C_0, *(row["switching/C"] for row in rows[2:])]
    expected = rethinking.switch_curve(C, L=0.0, alpha=ALPHA, zeta_=None).gain
    assert [row["switching/gain"] for row in rows[2:]] == pytest.approx(expected, rel=1e-9)
