"""The seed of a run decides all of it, the model's first weights too; what is the user's own resumes."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from pathlib import Path

import flat
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import fedkeel as fk
from fedkeel.common.identity import stable_name

WORK = fk.Work(epochs=1, batch_size=4, lr=0.1)
CLIENTS = [
    (torch.randn(8, 3, generator=torch.Generator().manual_seed(i)), torch.arange(8) % 2) for i in range(4)
]


class Net(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3, 2)


def train(task: fk.Task, directory: Path | None = None, rounds: int = 2, **options: object) -> fk.Result:
    federation = fk.Federation.from_arrays(CLIENTS)
    settings = {"rounds": rounds, "cohort": 2, "work": WORK, "engine": "serial", "run_dir": directory}
    return flat.train(task, federation, fk.FedAvg(), **{**settings, **options})


@pytest.mark.parametrize("make", [Net, lambda: nn.Linear(3, 2), functools.partial(nn.Linear, 3, 2)])
def test_a_model_that_is_made_for_the_run_comes_from_its_seed(make):
    state, task = torch.get_rng_state(), fk.Task(make)
    first = train(task, seed=1).server.x
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert torch.equal(train(task, seed=1).server.x, first)
    assert not torch.equal(train(task, seed=2).server.x, first)


def test_it_is_the_model_that_experiment_files_begin_with():
    made = fk.Task(fk.models.mlp).built(3).module.state_dict()
    named = fk.models.build("mlp", shape=(64,), classes=10, seed=3).state_dict()
    assert all(torch.equal(made[name], named[name]) for name in named)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (3, r"model is int: give a torch.nn.Module, or a function or class that makes one"),
        (lambda: 3, r"<lambda>\(\) gave int: it must give a torch.nn.Module"),
        (nn.Identity, "Identity has no trainable parameters"),
    ],
)
def test_what_makes_no_model_is_refused(model, told):
    with pytest.raises(fk.ConfigError, match=told):
        train(fk.Task(model))


def test_a_run_goes_on_from_the_weights_it_began_with(tmp_path):
    """SCAFFOLD's and FedInit's clients that were never drawn still start from x⁰."""
    whole = train(fk.Task(Net), rounds=4, seed=5)
    train(fk.Task(Net), tmp_path, seed=5)
    other = fk.Task(Net())
    assert torch.equal(train(other, tmp_path, rounds=4, seed=5, resume=True).server.x, whole.server.x)


def test_a_run_without_a_checkpoint_is_not_begun_again_with_other_weights(tmp_path):
    with pytest.raises(fk.FedkeelError):
        train(fk.Task(Net()), tmp_path, work=fk.Work(epochs=1, batch_size=4, lr=1e38))
    with pytest.raises(fk.StorageError, match=r"other initial weights.*Task\(lambda: Net\(\)\)"):
        train(fk.Task(Net()), tmp_path, resume=True, work=fk.Work(epochs=1, batch_size=4, lr=1e38))


def test_weights_that_are_not_trained_must_be_the_same(tmp_path):
    def half_frozen(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        model[0].requires_grad_(False)
        return model

    train(fk.Task(half_frozen(0)), tmp_path)
    train(fk.Task(half_frozen(0)), tmp_path, rounds=3, resume=True)
    with pytest.raises(fk.StorageError, match="another experiment: its task"):
        train(fk.Task(half_frozen(1)), tmp_path, rounds=4, resume=True)


OWN = """
import sys
import fedkeel as fk
import torch
from fedkeel.tensors.records import transform
from fedkeel.reducers import StackReducer
from torch import nn

class Jitter:
    def __init__(self, scale):
        self.scale = torch.tensor(scale)

    def __call__(self, x, generator):
        return x + self.scale * torch.randn(x.shape, generator=generator)

class Largest(StackReducer):
    def reduce(self, uploads, weights):
        return transform(lambda stacked: stacked.max(0).values, uploads)

def shrink(x):
    return 0.5 * x

data = [(torch.ones(4, 3) * i, torch.arange(4) % 2) for i in range(4)]
for factor, rounds in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
    federation = fk.Federation.from_arrays(data, transform=shrink, augment=Jitter(float(factor)))
    result = fk.train(
        fk.Task(lambda: nn.Linear(3, 2), loss=lambda o, t: nn.functional.cross_entropy(o, t)), federation,
        fk.FedAvg(), rounds=int(rounds), cohort=2, work=fk.Work(epochs=1), execution=fk.Execution("serial"),
        aggregation=fk.Aggregation(reducer=Largest()), run_dir=sys.argv[1], resume=True,
    )
    print(len(result.history), flush=True)
"""


@pytest.mark.slow(6)
def test_own_transforms_augmentations_losses_and_reducers_resume_in_another_process(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(OWN)

    def run(*factors_and_rounds: float) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, script, tmp_path / "run", *map(str, factors_and_rounds)]
        return subprocess.run(arguments, capture_output=True, text=True, check=False)

    assert run(0.1, 1).stdout == "1\n"
    other = run(0.1, 2, 0.2, 3)  # to be refused takes no third process
    assert other.stdout == "2\n"
    assert "another experiment: its federation" in other.stderr


def outer(factor: float) -> object:
    return lambda x: factor * x


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def call(self, x: Tensor) -> Tensor:
        return x


def test_an_identity_holds_no_address_and_tells_values_apart():
    knot: list[object] = [1]
    knot.append(knot)
    same = [
        (outer(1.0), outer(1.0)),
        (Slotted(torch.ones(3)), Slotted(torch.ones(3))),
        (Slotted(1).call, Slotted(1).call),
        (functools.partial(mse_loss, reduction="sum"), functools.partial(mse_loss, reduction="sum")),
        (Slotted(knot), Slotted(knot)),
        (eval("lambda x: x + 1"), eval("lambda x: x + 1")),
    ]
    assert all(stable_name(one) == stable_name(other) for one, other in same)
    different = [
        (outer(1.0), outer(2.0)),
        (Slotted(torch.ones(3)), Slotted(torch.zeros(3))),
        (Slotted(np.ones(3)), Slotted(np.ones(4))),
        (Slotted(1).call, Slotted(2).call),
        (functools.partial(mse_loss, reduction="sum"), functools.partial(mse_loss)),
        (nn.Linear(2, 2), nn.Linear(2, 2)),
        (eval("lambda x: x + 1"), eval("lambda x: x + 2")),
        (cross_entropy, mse_loss),
        (fk.FedProx(0.1), fk.FedProx(0.2)),
    ]
    assert all(stable_name(one) != stable_name(other) for one, other in different)
    assert stable_name(cross_entropy) == "cross_entropy"
    assert "0x" not in stable_name(threading.Lock())
    assert stable_name(fk.FedAvg()) == repr(fk.FedAvg())
