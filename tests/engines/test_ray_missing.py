"""Without Ray, its engine says what to install; the rest works."""

from __future__ import annotations

import sys

import flat
import pytest
import torch
from torch import nn

import fedkeel as fk

CLIENTS = [(torch.randn(4, 3), torch.arange(4) % 2) for _ in range(2)]


def train(**options: object) -> fk.Result:
    settings = {"rounds": 1, "cohort": 1, "work": fk.Work(steps=1), **options}
    return flat.train(fk.Task(nn.Linear(3, 2)), fk.Federation.from_arrays(CLIENTS), fk.FedAvg(), **settings)


def test_a_missing_ray_is_answered_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(fk.ConfigError, match=r'^Ray is not installed: pip install "fedkeel\[ray\]"$'):
        train(engine="ray")


@pytest.mark.parametrize(("name", "value"), [("address", "head:6379"), ("num_cpus", 2.0), ("num_gpus", 0.5)])
def test_options_of_ray_belong_to_its_engine(name, value):
    with pytest.raises(fk.ConfigError, match=f"{name} = {value!r}: only engine = 'ray' takes it"):
        train(engine="serial", **{name: value})
