"""Reducers, attacks and private updates in every engine: processes to the bit, stacked up to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_runs import ROBUST
from problems import tiny_net
from stacked_runs import distance, run

import fedkeel as fk
from fedkeel.tensors.records import leaves

PROBLEM = tiny_net([5, 12, 9, 1, 7, 3, 8, 4, 11, 6])
WORK = fk.Work(epochs=1, batch_size=4, lr=0.1)
CASE = pytest.mark.parametrize("case", ROBUST, ids=lambda case: str(next(iter(case.values()))))


def options(case: dict[str, Any]) -> dict[str, Any]:
    return {"rounds": 2, "cohort": 10, "work": WORK, **case}


@CASE
def test_stacked_is_serial_up_to_rounding(case: dict[str, Any]) -> None:
    for method in (fk.SCAFFOLD(), fk.FedNova()):
        both = [
            run(PROBLEM.task, PROBLEM.federation, method, name, **options(case))
            for name in ("serial", "stacked-uncompiled")
        ]
        assert distance(*both) < 1e-9


@CASE
def test_processes_are_serial_to_the_bit(case: dict[str, Any]) -> None:
    both = [
        run(PROBLEM.task, PROBLEM.federation, fk.SCAFFOLD(), "processes", workers=2, **options(case)),
        run(PROBLEM.task, PROBLEM.federation, fk.SCAFFOLD(), "serial", **options(case)),
    ]
    for (name, ours), (_, theirs) in zip(*(leaves(one.server) for one in both), strict=True):
        assert torch.equal(ours, theirs), name
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in one.history] for one in both]
    assert rows[0] == rows[1]


def test_a_linear_model_walks_on_attacked_samples_in_their_span() -> None:
    """The stacked engine keeps Gram matrices of linear models: they must be of what clients train on."""
    generator = torch.Generator().manual_seed(0)
    clients = [
        (torch.randn(6, 40, generator=generator).double(), torch.randint(0, 3, (6,), generator=generator))
        for _ in range(4)
    ]
    task = fk.Task(torch.nn.Linear(40, 3).double())
    federation = fk.Federation.from_arrays(clients, test=clients[0])
    for attack in (fk.LabelFlip(0.5), fk.Backdoor(0.5, size=10)):
        both = [
            run(
                task,
                federation,
                fk.FedAvg(),
                name,
                attack=attack,
                work=fk.Work(steps=20, batch_size=3, lr=0.1),
            )
            for name in ("serial", "stacked-uncompiled")
        ]
        assert distance(*both) < 1e-9
        clean = run(task, federation, fk.FedAvg(), "serial", work=fk.Work(steps=20, batch_size=3, lr=0.1))
        assert float((clean.server.x - both[0].server.x).abs().max()) > 1e-3


@pytest.mark.parametrize("engine", ["stacked-uncompiled", "processes"])
def test_private_updates_are_the_serial_ones(engine: str) -> None:
    work = fk.Work(steps=3, batch_size=4, lr=0.1)
    options = {"rounds": 2, "cohort": 9, "work": work, "workers": 2 if engine == "processes" else None}
    for method in (fk.SCAFFOLD(), fk.relaxed(fk.FedNova(), 0.1)):
        private = fk.private(method, clip=0.05, noise=0.8, delta=1e-3)
        both = [
            run(PROBLEM.task, PROBLEM.federation, private, name, **options) for name in ("serial", engine)
        ]
        assert distance(*both) <= (0.0 if engine == "processes" else 1e-9)
        assert both[0].history[-1]["epsilon"] == both[1].history[-1]["epsilon"]
