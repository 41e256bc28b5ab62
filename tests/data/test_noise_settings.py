"""Noise and augmentation in experiment files: the same federation as from Python, or a message that helps."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedkeel as fk
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.planned_run import changes
from fedkeel.studies.comparison import Comparison
from fedkeel.studies.sweep import Sweep

FILE = """
rounds = 3
cohort = 2
seed = 4
engine = "serial"
[data]
name = "cifar10"
split = "IID"
clients = 4
noise = ["ChannelGains(0.2)", "ClassBrightness(0.1)"]
augment = "Augment(flip=True, pad=2)"
[model]
name = "logistic"
[work]
steps = 2
batch_size = 5
lr = 0.01
"""


@pytest.fixture(autouse=True)
def few_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay down forty pictures as the data set cifar10."""
    (tmp_path / "sets").mkdir()
    x = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    y = np.arange(60) % 10
    parts = {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}
    np.savez(tmp_path / "sets" / "cifar10.npz", **parts)
    monkeypatch.setenv("FEDKEEL_DATA", str(tmp_path / "sets"))
    monkeypatch.chdir(tmp_path)


def experiment(*settings: str) -> Experiment:
    Path("e.toml").write_text(FILE)
    return Experiment.load("e.toml").with_settings(settings)


def from_python(split_seed: int, noise_seed: int) -> fk.Federation:
    dataset = fk.data.load("cifar10")
    split = dataset.split(fk.IID(), clients=4, seed=split_seed, augment=fk.data.Augment(flip=True, pad=2))
    return fk.data.add_noise(split, fk.data.ChannelGains(0.2), fk.data.ClassBrightness(0.1), seed=noise_seed)


@pytest.mark.parametrize(
    ("settings", "split_seed", "noise_seed"),
    [
        ([], 4, 4),
        (["data.seed=1"], 1, 1),
        (["data.noise_seed=0"], 4, 0),
        (["data.seed=1", "data.noise_seed=2"], 1, 2),
    ],
)
def test_a_file_gives_the_federation_of_the_call(
    settings: list[str], split_seed: int, noise_seed: int
) -> None:
    made, called = experiment(*settings).federation(), from_python(split_seed, noise_seed)
    for name in ("x", "y", "index", "offsets"):
        assert torch.equal(getattr(made, name), getattr(called, name)), name
    assert made.test is not None
    assert called.test is not None
    assert torch.equal(made.test[0], called.test[0])
    assert made.augment == called.augment == fk.data.Augment(flip=True, pad=2)
    assert made.origin == called.origin
    assert made.fingerprint() == called.fingerprint()


def test_a_file_gives_the_run_of_the_call() -> None:
    asked = experiment()
    federation = from_python(4, 4)
    rows = fk.train(
        asked.task(federation),
        federation,
        fk.FedAvg(),
        rounds=3,
        cohort=2,
        seed=4,
        work=fk.Work(steps=2, batch_size=5, lr=0.01),
        execution=fk.Execution("serial"),
    ).history
    found = asked.train().history
    assert [row["train_loss"] for row in found] == [row["train_loss"] for row in rows]
    for key in ("data.noise=none", "data.augment=none"):
        other = experiment(key).train().history
        assert [row["train_loss"] for row in found] != [row["train_loss"] for row in other], key


def test_noise_is_on_held_out_clients_too() -> None:
    made = experiment("data.held_out=1").federation()
    assert (len(made), made.held_out) == (3, 1)
    assert torch.equal(made.samples(3)[0], from_python(4, 4).samples(3)[0])


def test_one_noise_stands_alone_and_none_is_none() -> None:
    assert experiment("data.noise=ChannelGains(0.2)").data.noise == ["ChannelGains(0.2)"]
    for setting in ("data.noise=none", "data.noise=[]", 'data.noise="None"', 'data.noise=["none"]'):
        assert experiment(setting).data.noise is None, setting
    for setting in ("data.augment=none", 'data.augment="none"'):
        assert experiment(setting).data.augment is None, setting
    plain = experiment("data.noise=none", "data.augment=none").federation()
    assert plain.fingerprint() == fk.data.load("cifar10").split(fk.IID(), clients=4, seed=4).fingerprint()


def test_what_was_asked_reads_back_and_what_was_not_leaves_no_trace() -> None:
    asked = experiment("data.noise_seed=2")
    assert Experiment.from_table(tomllib.loads(asked.to_toml())) == asked
    assert Experiment.unchecked(asked.table()) == asked
    assert Experiment().with_settings(changes(asked)) == asked
    assert not {"noise", "noise_seed", "augment"} & Experiment().table()["data"].keys()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "data.noise=ChanelGains",
            "data.noise = 'ChanelGains': there is no kind of noise 'ChanelGains'; did you ",
        ),
        (
            "data.noise=ChannelGains(-1)",
            "data.noise = 'ChannelGains(-1)': ChannelGains(sigma=-1): sigma is -1; use 0",
        ),
        ("data.noise=ChannelGains(s=1)", "ChannelGains has no argument 's'; known: sigma"),
        (
            "data.noise=3",
            "data.noise = 3: 3 is not a kind of noise: write it as text, as in 'ChannelGains()'",
        ),
        ("data.noise=Augment", "data.noise = 'Augment': there is no kind of noise 'Augment'"),
        ('data.noise=["ChannelGains", "none"]', "data.noise = 'none': 'none' is not a kind of noise"),
        ("data.noise_seed=-1", "data.noise_seed = -1: input should be greater than or equal to 0"),
        ("data.augment=flip", "data.augment = 'flip': there is no augmentation 'flip'; known: Augment"),
        ("data.augment=true", "data.augment = True: True is not an augmentation: write it as text"),
        ("data.augment=Augment(pad=1.5)", "pad is 1.5; use 0 or a positive whole number of pixels"),
        ("data.augment=Augment(crop=4)", "Augment has no argument 'crop'; "),
        ("data.noize=ChannelGains", "there is no key 'data.noize'; did you mean 'noise'?"),
    ],
)
def test_a_mistake_is_told_with_its_key_its_value_and_the_fix(setting: str, message: str) -> None:
    with pytest.raises(fk.ConfigError) as caught:
        experiment(setting)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "data.augment=none",
            "data.noise = ['ChannelGains(0.2)', 'ClassBrightness(0.1)'] on 'digits': noise is for",
        ),
        (
            "data.noise=none",
            "data.augment = 'Augment(flip=True, pad=2)' on 'digits': augmentation is for pictures",
        ),
    ],
)
def test_data_that_are_no_pictures_are_refused(setting: str, message: str) -> None:
    with pytest.raises(fk.DataError) as caught:
        experiment("data.name=digits", setting).federation()
    assert message in str(caught.value)
    assert "a sample is float32 of shape (64,): leave it out, or take data of pictures" in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (
            "data.noise=ChannelGains(0.2)",
            "noise ChannelGains(sigma=0.2) + ClassBrightness(sigma=0.1) instead of Ch",
        ),
        ("data.noise=none", "noise ChannelGains(sigma=0.2) + ClassBrightness(sigma=0.1) instead of none"),
        ("data.noise_seed=0", "(it has noise_seed 4 instead of 0)"),
        (
            "data.augment=Augment(pad=4)",
            "(it has augment Augment(flip=True, pad=2) instead of Augment(flip=True, p",
        ),
        ("data.augment=none", "(it has augment Augment(flip=True, pad=2) instead of none)"),
    ],
)
def test_a_run_is_resumed_with_its_own_noise_alone(setting: str, told: str) -> None:
    experiment("rounds=1").train("run")
    with pytest.raises(
        fk.StorageError, match="run belongs to another experiment: its federation is"
    ) as caught:
        experiment("rounds=3", setting).train("run", resume=True)
    assert told in str(caught.value)


def test_a_resumed_run_is_the_uninterrupted_one() -> None:
    experiment("rounds=3").train("whole")
    experiment("rounds=1").train("cut")
    experiment("rounds=3").train("cut", resume=True)
    assert Path("cut/metrics.jsonl").read_bytes() == Path("whole/metrics.jsonl").read_bytes()


def test_comparisons_and_sweeps_take_them() -> None:
    compared = Comparison.of(experiment(), methods=["fedavg"], seeds=1)
    assert """--set 'data.noise=["ChannelGains(0.2)", "ClassBrightness(0.1)"]'""" in compared.line()
    assert "--set 'data.augment=Augment(flip=True, pad=2)'" in compared.line()
    sweep = Sweep.of(experiment(), over="data.noise=ChannelGains({})", values=["0.1", "0.4"], seeds=1)
    made: list[Any] = [sweep.experiment_of(value, 0).data.noise for value in sweep.values]
    assert made == [["ChannelGains(0.1)"], ["ChannelGains(0.4)"]]
    assert (
        Sweep.of(experiment(), over="data.noise", values=["none", "ChannelGains"], seeds=1)
        .experiment_of("none", 0)
        .data.noise
        is None
    )
    with pytest.raises(fk.ConfigError, match="sigma is -1"):
        Sweep.of(experiment(), over="data.noise=ChannelGains({})", values=["-1"], seeds=1)
