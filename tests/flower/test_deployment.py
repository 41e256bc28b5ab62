"""A deployment, its nodes in this process: equal to the simulation, and proof against nodes that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fedkeel as fk
from fedkeel.flower.envelope import Envelope
from fedkeel.flower.nodes import LinkError
from fedkeel.flower.serve import serve
from flower_nodes import SETTINGS, Change, FakeClock, FakeLink, deployment, simulation

TIMINGS = ("seconds",)


def deploy(
    tmp_path: Path, method: str, change: Change | None = None, **options: Any
) -> tuple[fk.Result, FakeLink]:
    config = {**SETTINGS, "method": method, "deploy.run_dir": str(tmp_path / "run"), **options}
    link = FakeLink(deployment(), config, tmp_path / "nodes", change)
    return serve(link.made, link, config, FakeClock().clock()), link


def rows(result: fk.Result) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in TIMINGS} for row in result.history]


def assert_same(one: fk.Result, other: fk.Result) -> None:
    assert rows(one) == rows(other)
    pairs = zip(one.model.state_dict().items(), other.model.state_dict().items(), strict=True)
    for (name, mine), (_, theirs) in pairs:
        assert torch.equal(mine, theirs), name


METHODS = (
    "fedavg",
    "scaffold",
    "feddyn(0.1)",
    "fedinit(0.1)",
    "fedsagd",
    "relaxed(scaffold, beta=0.1)",
    "stages((feddyn(0.1), 2), fedavg)",
    "stages((scaffold, 1), (feddyn(0.1), 2), scaffold)",
)


@pytest.mark.parametrize("method", METHODS)
def test_a_deployment_equals_the_simulation_to_the_bit(tmp_path: Path, method: str) -> None:
    assert_same(deploy(tmp_path, method)[0], simulation(method))
