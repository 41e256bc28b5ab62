"""The stacked engine records a step once, and compiles it where it can."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from problems import tiny_net
from stacked_runs import EQUAL, RAGGED, distance, run
from torch import nn

import fedkeel as fk
from fedkeel.engines.stacked import capture, engine


@pytest.mark.slow
def test_one_step_is_recorded_for_all_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = []

    def counted(*arguments: Any, **options: Any) -> capture.Replay:
        recorded.append(arguments)
        return capture.capture(*arguments, **options)

    monkeypatch.setattr(engine, "capture", counted)
    problem = tiny_net([6, 6, 6])
    methods = [fk.FedAvg(), fk.FedProx(), fk.SCAFFOLD(), fk.FedDyn(), fk.FedCM(), fk.FedSAGD(), fk.FedInit()]
    for made in methods:
        run(problem.task, problem.federation, made, "stacked-uncompiled", cohort=2)
    assert len(recorded) == 1
    run(problem.task, problem.federation, fk.FedSAM(), "stacked-uncompiled", cohort=2)
    assert len(recorded) == 2


@pytest.mark.slow
def test_the_compiled_step_gives_the_same() -> None:
    serial = run(RAGGED.task, RAGGED.federation, fk.SCAFFOLD(), "serial")
    assert distance(serial, run(RAGGED.task, RAGGED.federation, fk.SCAFFOLD(), "stacked")) < 1e-10


def test_a_compiler_that_fails_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> capture.Replay:
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(capture, "_compile", broken)
    problem = tiny_net([6, 6])
    serial = run(problem.task, problem.federation, fk.FedAvg(), "serial")
    with caplog.at_level(logging.WARNING, "fedkeel"):
        assert distance(serial, run(problem.task, problem.federation, fk.FedAvg(), "stacked")) < 1e-10
    assert "no compiler here" in caplog.text


@pytest.mark.slow
def test_a_step_of_many_operations_is_not_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> capture.Replay:
        raise AssertionError

    monkeypatch.setattr(capture, "_compile", refuse)
    torch.manual_seed(0)
    layers = [layer for _ in range(40) for layer in (nn.Linear(3, 3), nn.Tanh())]
    task = fk.Task(nn.Sequential(*layers, nn.Linear(3, 4)).double())
    with caplog.at_level(logging.INFO, "fedkeel"):
        result = run(task, EQUAL.federation, fk.FedAvg(), "stacked")
    assert "takes too long to compile" in caplog.text
    assert distance(run(task, EQUAL.federation, fk.FedAvg(), "serial"), result) < 1e-10
