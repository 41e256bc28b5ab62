"""Measuring a step: what is counted, what it leaves alone, and what the run finds ready after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import torch
from problems import tiny_net
from torch import nn

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines import build, stopwatch
from fedkeel.engines.contract import Choice
from fedkeel.engines.stacked import engine as stacked_engine
from fedkeel.running.session import open_session
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings

PROBLEM = tiny_net([8, 8, 8, 8])


def question(model: nn.Module | None = None, **options: Any) -> tuple[RunSettings, Oracle]:
    """Return the settings of a run of four clients per round, and the oracle of its task."""
    task = PROBLEM.task if model is None else fk.Task(model.double())
    settings: dict[str, Any] = {"method": fk.FedAvg(), "work": fk.Work(epochs=2, batch_size=4), **options}
    made = RunSettings(task=task, federation=PROBLEM.federation, rounds=2, cohort=4, **settings)
    return made, Oracle(task, torch.device("cpu"))


def ticking(step: float) -> Callable[[], float]:
    """Return a clock that goes on by so many seconds each time it is read."""

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += step

    return ticks().__next__


def test_a_model_of_more_layers_has_more_operations() -> None:
    layers = [nn.Linear(3, 3) for _ in range(5)]
    counts = [stopwatch.operations(*question(nn.Sequential(*layers[:n], nn.Linear(3, 4)))) for n in (0, 2, 5)]
    assert counts == [1, 3, 6]


@pytest.mark.parametrize("engine", ["serial", "stacked-uncompiled"])
def test_the_stopwatch_counts_a_step_of_one_client(engine: str) -> None:
    settings, oracle = question()
    clients = 2 if engine == "serial" else 4
    with stopwatch.timer(settings, oracle.device, Choice(engine, 1), build, ticking(0.01)) as measure:
        assert measure() == pytest.approx(0.01 / (4 * clients))


def test_measuring_leaves_the_first_model_alone() -> None:
    settings, oracle = question()
    before = oracle.point.clone()
    with stopwatch.timer(settings, oracle.device, Choice("serial", 1), build) as measure:
        measure()
    assert torch.equal(oracle.point, before)


@pytest.mark.slow
@pytest.mark.parametrize("method", [fk.FedAvg(), fk.SCAFFOLD(), fk.FedSAM(), fk.FedCM()], ids=str)
def test_the_run_finds_the_steps_that_were_recorded_to_measure_them(
    method: fk.Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, oracle = question(nn.Linear(3, 4), method=method)
    with stopwatch.timer(settings, oracle.device, Choice("stacked-uncompiled", 1), build):
        pass
    monkeypatch.delattr(stacked_engine, "capture")
    with closing(open_session(settings, Execution(engine="stacked-uncompiled", threads=1))) as session:
        assert len(list(session.rounds())) == 2
