"""Runs of the stacked engine beside serial ones, and how far apart they end."""

from __future__ import annotations

from typing import Any

import flat
import torch
from problems import tiny_net

import fedkeel as fk
from fedkeel.tensors.records import leaves

EQUAL, RAGGED = tiny_net([12] * 4), tiny_net([5, 12, 9, 1])
WORK = fk.Work(epochs=2, batch_size=4, lr=0.1)


def run(task: fk.Task, federation: fk.Federation, method: Any, name: str, **options: Any) -> fk.Result:
    settings = {"rounds": 2, "cohort": 1.0, "work": WORK, "threads": 1, **options}
    return flat.train(task, federation, method, engine=name, **settings)


def distance(a: fk.Result, b: fk.Result) -> float:
    """Return the largest difference in all that two runs leave behind."""
    pairs = list(zip(leaves(a.server), leaves(b.server), strict=True))
    assert set(a.client_states) == set(b.client_states)
    for client in a.client_states:
        pairs += zip(leaves(a.client_states[client]), leaves(b.client_states[client]), strict=True)
    for ours, theirs in zip(a.history, b.history, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ("cohort", "gradients", "bytes_up", "bytes_down", "passes"):
            assert ours.get(name) == theirs.get(name), name
    losses = [abs(r["train_loss"] - s["train_loss"]) for r, s in zip(a.history, b.history, strict=True)]
    return max([*(float((u - v).abs().max()) for (_, u), (_, v) in pairs), *losses])


def both(task: fk.Task, federation: fk.Federation, method: Any, **options: Any) -> float:
    serial = run(task, federation, method, "serial", **options)
    return distance(serial, run(task, federation, method, "stacked-uncompiled", **options))


def pictures(sizes: list[int], side: int = 8) -> fk.Federation:
    generator = torch.Generator().manual_seed(0)
    return fk.Federation.from_arrays(
        [
            (
                torch.randint(0, 256, (n, 1, side, side), generator=generator, dtype=torch.uint8),
                torch.randint(0, 3, (n,), generator=generator),
            )
            for n in sizes
        ],
        transform=lambda x: x.double() / 255,
    )
