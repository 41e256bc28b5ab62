"""FedDyn and SCAFFOLD by size: what Acar et al. run where clients have unequally many samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from engines.stacked_runs import RAGGED, both
from problems import half_square, play, tiny_net

import fedkeel as fk
from fedkeel.explain import explain

SIZES = [3, 8, 5, 11, 4]
WORK = fk.Work(epochs=2, batch_size=3, lr=0.05, lr_decay=0.9, weight_decay=0.01)
PAIRS = [
    (fk.FedDyn(0.4, by_size=True), fk.FedDyn(0.4)),
    (fk.SCAFFOLD(0.9, by_size=True), fk.SCAFFOLD(0.9)),
    (fk.SCAFFOLD(option="I", by_size=True), fk.SCAFFOLD(option="I")),
]
BY_SIZE = [by_size for by_size, _ in PAIRS]


@pytest.mark.parametrize(("by_size", "plain"), PAIRS, ids=repr)
def test_equal_sizes_give_the_plain_method_to_the_bit(by_size: Any, plain: Any) -> None:
    problem = tiny_net([6] * 5)
    played = (play(problem, one, rounds=4, cohort=3, work=WORK)[-1] for one in (by_size, plain))
    assert np.array_equal(*(after.models["x"] for after in played))


@pytest.mark.parametrize("method", BY_SIZE, ids=repr)
def test_unequal_sizes_do_not_give_the_plain_method(method: Any) -> None:
    plain = type(method)(**{**vars(method), "by_size": False})
    first, second = (play(tiny_net(SIZES), one, rounds=3, cohort=3, work=WORK)[-1] for one in (method, plain))
    assert np.abs(first.models["x"] - second.models["x"]).max() > 1e-4


@pytest.mark.parametrize("method", BY_SIZE[:2], ids=repr)
def test_the_stacked_engine_agrees_also_where_slots_stay_empty(method: Any) -> None:
    assert both(RAGGED.task, RAGGED.federation, method, sampling="bernoulli", cohort=3, rounds=4) < 1e-10


def mean_over_all(memories: dict[int, Any], field: str, like: np.ndarray) -> np.ndarray:
    """Return the mean of w_i times what client i keeps, over all clients; others keep zeros."""
    total = np.zeros_like(like)
    for i, memory in memories.items():
        total += SIZES[i] / np.mean(SIZES) * getattr(memory, field).numpy()
    return total / len(SIZES)


def test_the_servers_h_is_the_mean_of_all_clients_weighted_h() -> None:
    """So x is γ plus the mean over all clients of the accumulated moves, as in the authors' code."""
    moved = np.zeros((len(SIZES), len(tiny_net(SIZES).x0)))
    before: dict[int, Any] = {}
    for after in play(tiny_net(SIZES), fk.FedDyn(0.4, by_size=True), rounds=6, cohort=2, work=WORK):
        h = after.server.h.numpy()
        np.testing.assert_allclose(mean_over_all(after.memories, "h_i", h), h, rtol=1e-12, atol=1e-14)
        for i in after.row["cohort"]:
            old = before[i].h_i.numpy() if i in before else 0.0
            moved[i] -= (after.memories[i].h_i.numpy() - old) / (0.4 / (SIZES[i] / np.mean(SIZES)))
        np.testing.assert_allclose(after.models["x"], after.models["gamma"] + moved.mean(0), rtol=1e-11)
        before = after.memories


@pytest.mark.parametrize("method", BY_SIZE[1:], ids=repr)
def test_the_servers_c_is_the_mean_of_all_clients_weighted_c(method: Any) -> None:
    for after in play(tiny_net(SIZES), method, rounds=6, cohort=2, work=WORK):
        c = after.server.c.numpy()
        np.testing.assert_allclose(mean_over_all(after.memories, "c_i", c), c, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("method", [fk.FedDyn(1.0, by_size=True), fk.SCAFFOLD(by_size=True)], ids=repr)
def test_the_fixed_point_is_the_optimum_over_all_samples(method: Any) -> None:
    """The plain method weighs every client alike, and ends at the optimum of the clients' mean loss."""
    generator = torch.Generator().manual_seed(0)
    sizes = [4, 12, 8]
    clients = [
        (
            torch.randn(n, 2, generator=generator, dtype=torch.float64),
            torch.randn(n, 1, generator=generator, dtype=torch.float64) + i,
        )
        for i, n in enumerate(sizes)
    ]
    x, y = (torch.cat(parts) for parts in zip(*clients, strict=True))
    optimum = torch.linalg.lstsq(x, y).solution.flatten()
    task = fk.Task(torch.nn.Linear(2, 1, bias=False).double(), half_square, {})
    federation, work = fk.Federation.from_arrays(clients), fk.Work(steps=3, lr=0.2)

    def end(one: Any) -> torch.Tensor:
        result = fk.train(
            task, federation, one, rounds=150, cohort=3, work=work, execution=fk.Execution("serial")
        )
        return next(iter(result.model.parameters())).detach().flatten()

    assert (end(method) - optimum).abs().max() < 1e-8
    plain = type(method)(**{**vars(method), "by_size": False})
    assert (end(plain) - optimum).abs().max() > 1e-3


def test_explain_prints_what_is_divided_by_the_relative_size() -> None:
    feddyn, scaffold = explain(fk.FedDyn(by_size=True)), explain(fk.SCAFFOLD(by_size=True))
    assert feddyn.equations["step"] == ["y ← y − η·(g − h_i + alpha·(y − x)/w_i + wd·y)"]
    assert "c/w_i" in scaffold.equations["step"][0]
    assert "w_i·((x − end)/length − c)" in scaffold.equations["up"][1]
    told = " ".join(str(feddyn).split())
    assert "w_i is the client's number of samples over the mean of all clients" in told
    assert "w_i" not in str(explain(fk.FedProx()))


def test_a_method_is_known_by_the_same_text_as_before_the_option_existed() -> None:
    assert repr(fk.FedDyn()) == "FedDyn(alpha=0.1, regularize=True, compensate=True)"
    assert repr(fk.SCAFFOLD(by_size=True)) == "SCAFFOLD(lr=1.0, option='II', by_size=True)"
