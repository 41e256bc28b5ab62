"""Bad input gets a message that names the thing, the value and the fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import quadratic, tiny_net
from torch import nn

import fedkeel as fk

SIZES = [3, 8, 5, 11]
WORK = fk.Work(steps=2, batch_size=3, lr=0.1)
RNG = np.random.default_rng(0)


def train(**options: Any) -> fk.Result:
    problem = tiny_net(SIZES)
    given: dict[str, Any] = {
        "task": problem.task,
        "federation": problem.federation,
        "method": fk.FedAvg(),
        "rounds": 2,
        "cohort": 2,
        "work": WORK,
    }
    return flat.train(**(given | options))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fk.FedProx(mu=-1), r"FedProx: mu = -1: input should be greater than or equal to 0"),
        (lambda: fk.FedProx(nu=1), r"FedProx has no argument 'nu'; known: mu"),
        (lambda: fk.Work(epohs=1), r"Work has no argument 'epohs'; did you mean 'epochs'\?"),
        (lambda: fk.FedProx("much"), r"FedProx: mu = 'much': .*number"),
        (lambda: fk.FedDyn(0.0), r"FedDyn: alpha = 0.0: .*greater than 0"),
        (lambda: fk.FedAvgM(1.0), r"FedAvgM: beta = 1.0: .*less than 1"),
        (lambda: fk.SCAFFOLD(option="III"), r"SCAFFOLD: option = 'III'"),
        (lambda: fk.FedCM(float("nan")), r"FedCM: alpha = nan"),
        (lambda: fk.Work(lr=0.1), r"exactly one of epochs and steps, not epochs=None and steps=None"),
        (lambda: fk.Work(epochs=1, steps=1), r"exactly one of epochs and steps"),
        (lambda: fk.Work(epochs=0), r"Work: epochs = 0"),
        (lambda: fk.Work(epochs=1, batch_size=0), r"Work: batch_size = 0"),
        (lambda: fk.relaxed(3), r"3 is not a method"),
        (lambda: fk.relaxed(fk.FedInit()), r"give one beta"),
        (lambda: fk.relaxed(fk.FedAvg(), gamma="end"), r"gamma='end' goes with aggregate='walk'"),
        (lambda: fk.stages(fk.FedDyn(), fk.FedAvg()), r"every method but the last needs its end"),
        (lambda: fk.stages((fk.FedDyn(), 1.5), fk.FedAvg()), r"until=1.5: a fraction"),
        (
            lambda: fk.stages((fk.FedDyn(), 5), (fk.FedAvg(), 3), fk.FedAvg()),
            r"rounds \[5, 3\] must not fall",
        ),
        (lambda: fk.stages((fk.FedDyn(), 5), fk.FedAvg(), memory="carry"), r"keep different client states"),
        (lambda: fk.Task(nn.ReLU()), r"ReLU has no trainable parameters"),
        (lambda: fk.Task(3), r"model is int: give a torch.nn.Module"),
        (lambda: train(cohort=5), r"cohort = 5: there are 4 clients, so give 1 to 4"),
        (lambda: train(cohort=0), r"cohort = 0"),
        (lambda: train(cohort=1.5), r"cohort = 1.5: a fraction"),
        (lambda: train(cohort=True), r"cohort = True: give a count"),
        (lambda: train(rounds=0), r"rounds = 0: .*greater than or equal to 1"),
        (lambda: train(seed=-1), r"seed = -1"),
        (lambda: train(engine="warp"), r"engine = 'warp': known: auto"),
        (lambda: train(engine="serail"), r"engine = 'serail': did you mean 'serial'\?"),
        (lambda: train(method="fedavg"), r"method = 'fedavg' is not a method"),
        (lambda: train(cohort="all"), r"cohort = 'all': give a count \(10\) or a fraction"),
        (lambda: train(cohort=fk.Bernoulli(5)), r"cohort = 5: there are 4 clients, so give 1 to 4"),
        (lambda: fk.Bernoulli(1.5), r"Bernoulli: clients = 1.5: a fraction"),
        (lambda: fk.Bernoulli(True), r"Bernoulli: clients = True: give a count"),
        (lambda: train(resume=True), r"resume=True needs run_dir"),
        (lambda: train(method=fk.sharp(fk.FedSAM())), r"has a sharp step already"),
    ],
)
def test_configuration(make: Any, message: str) -> None:
    with pytest.raises(fk.ConfigError, match=message) as caught:
        make()
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, ValueError)


def classes(x: Any, y: Any, **options: Any) -> fk.Federation:
    return fk.Federation.from_arrays([(RNG.normal(size=(4, 3)), [0, 1, 2, 3]), (x, y)], **options)


NAN = RNG.normal(size=(4, 3))
NAN[2, 1] = np.nan


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fk.Federation.from_arrays([]), r"no clients given"),
        (lambda: classes(np.empty((0, 3)), []), r"client 1 has no samples"),
        (lambda: classes(np.ones((4, 3)), [0, 1]), r"client 1: x has shape \(4, 3\) and y \(2,\)"),
        (lambda: classes(np.ones((4, 5)), [0] * 4), r"client 1: a row of x .*\(5,\), but client 0 has"),
        (lambda: classes(NAN, [0] * 4), r"client 1: x\[2\] holds NaN or infinity"),
        (lambda: classes(np.ones((1, 3)), [0], test=(NAN, [0] * 4)), r"sample 2 of the test set holds NaN"),
        (
            lambda: train(federation=classes(np.ones((3, 3)), [0, 1, 7])),
            r"client 1: y\[2\] has the label 7, .*4 outputs",
        ),
        (lambda: train(federation=classes(np.ones((1, 3)), [-1])), r"client 1: y\[0\] has the label -1"),
        (
            lambda: train(federation=fk.Federation.from_arrays([(np.ones((2, 7)), [0, 1])] * 4)),
            r"Sequential does not take a batch of shape \(2, 7\)",
        ),
        (
            lambda: train(
                task=fk.Task(nn.Linear(3, 4).double(), loss=lambda o, t: (o.sum(1) - t) ** 2, metrics={})
            ),
            r"the loss has shape \(2,\): it must be one number",
        ),
        (
            lambda: train(task=fk.Task(nn.Linear(3, 4).double(), metrics={"each": lambda o, t: o})),
            r"the metric 'each' returns",
        ),
    ],
)
def test_data(make: Any, message: str) -> None:
    with pytest.raises(fk.DataError, match=message) as caught:
        make()
    assert caught.value.exit_code == 3


def test_methods_that_need_a_classifier_say_so() -> None:
    regression = fk.Federation.from_arrays([(RNG.normal(size=(4, 3)), RNG.normal(size=(4, 2)))] * 3)
    task = fk.Task(nn.Linear(3, 2).double(), nn.functional.mse_loss, {})
    with pytest.raises(fk.ConfigError, match="FedNTD needs a classifier"):
        train(task=task, federation=regression, method=fk.FedNTD())


def test_moon_needs_features_and_takes_a_named_layer() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(3, 4, dtype=torch.float64))
            self.act = nn.Tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(x @ self.w)

    with pytest.raises(
        fk.ConfigError, match="no linear layer to take penultimate features from: name the layer"
    ):
        train(task=fk.Task(Bare()), method=fk.MOON())
    with pytest.raises(fk.ConfigError, match="features='tanh': Bare has no such layer; it has act"):
        train(task=fk.Task(Bare(), features="tanh"), method=fk.MOON())
    train(task=fk.Task(Bare(), features="act"), method=fk.MOON())


@pytest.mark.slow
def test_divergence_names_round_client_and_checkpoint(tmp_path: Path) -> None:
    steep = quadratic(SIZES)
    given = {"task": steep.task, "federation": steep.federation, "rounds": 500, "eval_every": 500}
    given["engine"] = "serial"  # for so many rounds a step would be compiled, which is of no use here
    with pytest.raises(fk.Diverged, match=r"round 0, client \d: the loss or the model turned NaN") as caught:
        train(**given, work=fk.Work(steps=200, lr=1e3), run_dir=tmp_path / "at once")
    assert caught.value.exit_code == 4
    assert caught.value.client is not None
    with pytest.raises(fk.Diverged, match=r"the last good checkpoint is .*round-\d+") as caught:
        train(**given, work=fk.Work(steps=3, lr=30.0), run_dir=tmp_path / "later")
    assert caught.value.round > 0


def test_a_directory_of_another_experiment(tmp_path: Path) -> None:
    train(run_dir=tmp_path / "run")
    with pytest.raises(fk.StorageError, match=r"holds a run already: resume it") as caught:
        train(run_dir=tmp_path / "run")
    assert caught.value.exit_code == 6
    with pytest.raises(fk.StorageError, match=r"another experiment: its method is 'FedAvg.* not 'FedProx"):
        train(run_dir=tmp_path / "run", resume=True, method=fk.FedProx())
    with pytest.raises(fk.StorageError, match=r"another experiment: its seed is 0, not 1"):
        train(run_dir=tmp_path / "run", resume=True, seed=1)
    with pytest.raises(fk.ConfigError, match=r"holds 2 rounds: give more"):
        train(run_dir=tmp_path / "run", resume=True, rounds=1)
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.txt").write_text("meow")
    with pytest.raises(fk.StorageError, match=r"holds cat.txt and no run of fedkeel"):
        train(run_dir=other)
    assert (other / "cat.txt").read_text() == "meow"


def test_an_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(fk.StorageError, match=r"file.*choose another directory"):
        train(run_dir=tmp_path / "file" / "run")


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(rounds=6)
    train(rounds=2, run_dir=tmp_path)
    writes: list[Any] = []

    def full(handle: int) -> None:
        writes.append(handle)
        if len(writes) > 4:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(fk.StorageError, match="No space left on device: free some room and resume"):
            train(rounds=6, run_dir=tmp_path, resume=True, checkpoint_every=1)
    resumed = train(rounds=6, run_dir=tmp_path, resume=True)
    assert torch.equal(resumed.server.x, whole.server.x)


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    whole = train(rounds=6, method=fk.SCAFFOLD())
    train(rounds=4, run_dir=tmp_path, checkpoint_every=1, method=fk.SCAFFOLD(), keep_client_states=True)
    newest = max((tmp_path / "checkpoints").iterdir())
    damaged = newest / "server.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.warns(UserWarning, match="damaged.*going back to the checkpoint before"):
        resumed = train(rounds=6, run_dir=tmp_path, resume=True, method=fk.SCAFFOLD())
    assert torch.equal(resumed.server.x, whole.server.x)


def test_torn_lines_are_cut(tmp_path: Path) -> None:
    whole = train(rounds=6)
    train(rounds=4, run_dir=tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"round": 4, "cohort": [1]}) + '\n{"round": 5, "coh')
    resumed = train(rounds=6, run_dir=tmp_path, resume=True)
    assert [row["cohort"] for row in resumed.history] == [row["cohort"] for row in whole.history]
