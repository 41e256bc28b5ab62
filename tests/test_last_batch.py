"""The samples that are left over at the end of an epoch: kept, dropped or merged, in every engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from selecting import slow
from torch import nn

import fedkeel as fk

SIZES = [1, 4, 5, 8, 9]


def run(model: nn.Module, sizes: list[int], engine: str = "serial", **work: object) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    clients = [(torch.randn(n, 3, generator=generator), torch.arange(n) % 2) for n in sizes]
    return fk.train(
        fk.Task(model),
        fk.Federation.from_arrays(clients),
        fk.SCAFFOLD(),
        rounds=2,
        cohort=len(sizes),
        work=fk.Work(**{"epochs": 2, "batch_size": 4, "lr": 0.1, **work}),
        execution=fk.Execution(engine, workers=2),
    ).server.x


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("keep", [[1], [4], [4, 1], [4, 4], [4, 4, 1]]),
        ("drop", [[1], [4], [4], [4, 4], [4, 4]]),
        ("merge", [[1], [4], [5], [4, 4], [4, 5]]),
    ],
)
def test_sizes_of_an_epoch(kind, sizes):
    work = fk.Work(epochs=3, batch_size=4, last_batch=kind)
    assert [work.epoch(samples) for samples in SIZES] == sizes
    for samples, expected in zip(SIZES, sizes, strict=True):
        order = work.order(samples, np.random.default_rng(0))
        assert [len(batch) for batch in order] == expected * 3
        assert work.count(samples) == len(order)
        epoch = np.concatenate(order[: len(expected)])
        assert len(set(epoch)) == len(epoch) == sum(expected)


def test_other_samples_are_dropped_in_every_epoch():
    order = fk.Work(epochs=20, batch_size=4, last_batch="drop").order(5, np.random.default_rng(0))
    assert len({frozenset(batch) for batch in order}) == 5


def test_steps_go_on_with_the_next_epoch():
    work = fk.Work(steps=5, batch_size=4, last_batch="merge")
    assert [len(batch) for batch in work.order(9, np.random.default_rng(0))] == [4, 5, 4, 5, 4]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["drop", *slow("merge")])
@pytest.mark.parametrize("engine", ["stacked-uncompiled", "processes"])
def test_engines_agree(kind, engine):
    torch.manual_seed(0)
    for model in (nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))):
        ends = [
            run(model.double(), SIZES, name, last_batch=kind, weight_decay=0.01)
            for name in ("serial", engine)
        ]
        assert torch.allclose(*ends, rtol=1e-12, atol=1e-14)


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_a_leftover_that_batch_norm_cannot_take_is_found_before_the_first_round():
    told = r"client 1 has 9 samples: in minibatches of 4 one is left over.*last_batch='drop'.*'merge'"
    with pytest.raises(fk.DataError, match=told):
        run(normalised(), [8, 9, 6])
    with pytest.raises(fk.DataError, match=r"client 2 has a single sample.*GroupNorm"):
        run(normalised(), [8, 4, 1], last_batch="drop")
    with pytest.raises(fk.DataError, match=r"minibatches of one sample: give Work a larger batch_size"):
        run(normalised(), [3], batch_size=1)


@pytest.mark.parametrize("kind", ["drop", "merge"])
def test_dropped_or_merged_it_trains(kind):
    assert run(normalised(), [8, 9, 6], last_batch=kind).isfinite().all()


def test_batch_norm_that_takes_one_sample_is_left_alone():
    spatial = nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 1), nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(6, 2)
    )
    assert run(spatial, [8, 9]).isfinite().all()
