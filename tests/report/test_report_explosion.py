"""Explosions: told by loss and norm, whatever the accuracy; ordinary training is never called one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import flat
import pytest
from selecting import one_in
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli.app import app
from fedkeel.report.explosion import find_explosion


def rows(losses: list[Any], norms: list[float]) -> list[dict[str, Any]]:
    return [
        {"round": i, "loss": loss, "norm": norm, "accuracy": 0.9}
        for i, (loss, norm) in enumerate(zip(losses, norms, strict=True))
    ]


@pytest.mark.parametrize(
    ("losses", "norms", "reason"),
    [
        ([2.3, 1e12], [2.0, 1e14], "the loss ended at 1e+12, after 2.3 at first"),
        ([2.3, 23.1], [2.0, 2.0], "the loss ended at 23.1, after 2.3 at first"),
        ([0.1, 10.1], [2.0, 2.0], "the loss ended at 10.1"),
        ([1e9, 1e9], [2.0, 2.0], "the loss ended at 1e+09"),
        ([2.3, None], [2.0, 201.0], "the norm of the model ended at 201, after 2 at first"),
        ([2.3, math.nan], [2.0, 2.0], "the loss is nan in round 1"),
        ([2.3, 2.0], [math.inf, 2.0], "the norm of the model is inf in round 0"),
    ],
)
def test_what_has_exploded(losses: list[Any], norms: list[float], reason: str) -> None:
    assert reason in str(find_explosion(rows(losses, norms)))


@pytest.mark.parametrize(
    ("losses", "norms"),
    [
        ([2.3, 22.9], [2.0, 199.0]),
        ([0.1, 9.9], [2.0, 2.0]),
        ([2.3, 1e9, 0.4], [2.0, 1e9, 3.0]),  # a leap that was made good
        ([None, None], [0.0, 5.0]),
        ([1.0] * 400, [float(i + 1) for i in range(400)]),  # from zero, by steps of one length
    ],
)
def test_what_has_not(losses: list[Any], norms: list[float]) -> None:
    assert find_explosion(rows(losses, norms)) is None
    assert find_explosion([]) is None
    assert find_explosion([{"round": 0, "accuracy": 0.5}]) is None


def history(method: fk.Algorithm, lr: float = 0.1) -> list[dict[str, Any]]:
    federation = fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=100, seed=0)
    task = fk.Task(fk.models.build("logistic", shape=(64,), classes=10, seed=0))
    work = fk.Work(epochs=1, batch_size=10, lr=lr)
    options: dict[str, Any] = {"engine": "serial", "threads": 1, "eval_every": 10}
    return list(
        flat.train(task, federation, method, rounds=80, cohort=2, work=work, seed=0, **options).history
    )


def test_relaxed_initialisation_that_explodes_keeps_its_accuracy_and_is_found() -> None:
    with pytest.warns(UserWarning, match="may grow without bound"):
        rows = history(fk.FedInit(0.3))
    assert rows[-1]["accuracy"] > 0.7
    assert rows[-1]["norm"] > 1e6
    assert find_explosion(rows) is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:relaxed")
def test_a_comparison_calls_it_diverged_and_ends_with_that_code(tmp_path: Path) -> None:
    line = (
        "compare --method fedinit(0.3) --method fedavg --seeds 2 --model logistic --clients 100 --cohort 2 "
        f"--rounds 80 --epochs 1 --batch-size 10 --set engine=serial --out {tmp_path / 'c'}"
    )
    told = CliRunner().invoke(app, line.split())
    assert told.exit_code == 4
    assert "2 of 2 diverged" in told.stdout
    assert "FedInit(0.3) diverged on 2 of 2 seeds and is not ranked." in " ".join(told.stdout.split())
    assert "2 of 4 runs diverged" in told.stderr


@pytest.mark.parametrize(
    "method", one_in(4, [fk.FedAvg(), fk.FedDyn(0.01), fk.SCAFFOLD(), fk.FedAvg(lr=20.0)])
)
def test_ordinary_training_is_not_called_an_explosion(method: fk.Algorithm) -> None:
    assert find_explosion(history(method)) is None
