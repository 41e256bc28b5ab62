"""Pre-training on other data: done once, and kept in the user's cache directory for all runs that ask for it.

It is a run of FedAvg with one client that has all samples, each round an epoch, by the engine "serial" on one
thread: its bits do not depend on how the runs are executed that begin with its weights.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fedkeel.common.columns import shown_score
from fedkeel.common.errors import ConfigError, Diverged, Stopped, StorageError, did_you_mean
from fedkeel.common.files import cache_directory, storage_errors
from fedkeel.common.frozen import Count, NonNegative, Positive, Seed, frozen
from fedkeel.common.progress import TimeLeft
from fedkeel.common.version import __version__
from fedkeel.core.task import Task
from fedkeel.core.work import Work
from fedkeel.data import IID, load, names
from fedkeel.experiments.networks import model_for
from fedkeel.methods import FedAvg
from fedkeel.models.building import Architecture
from fedkeel.running.ending import MODEL_FILE
from fedkeel.running.run_directory import read_manifest, read_rows
from fedkeel.running.train import run
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings

_FORM = 1  # of the key


@frozen
class Pretrain:
    """Begin with weights from epochs of plain SGD on all samples of another data set (Rethinking, Figure 7).

    The minibatches and the weights before the first epoch are drawn from `seed`, not from the run's: all
    seeds of a comparison begin with the same weights.
    """

    data: str
    epochs: Count = 5
    lr: Positive = 0.1
    batch_size: Count = 50
    weight_decay: NonNegative = 0.0
    seed: Seed = 0

    def __post_init__(self) -> None:
        if self.data not in names():
            raise ConfigError(
                f"Pretrain: there is no data set {self.data!r}; {did_you_mean(self.data, names())}"
            )


def pretraining_of(asked: Pretrain, model: Architecture, dtype: torch.dtype) -> RunSettings:
    """Return the pre-training of a model as the run that it is."""
    federation = load(asked.data).split(IID(), clients=1, seed=asked.seed)
    return RunSettings(
        task=Task(model_for(federation, model, data=asked.data, seed=asked.seed, dtype=dtype)),
        federation=federation,
        method=FedAvg(),
        rounds=asked.epochs,
        cohort=1,
        work=Work(epochs=1, batch_size=asked.batch_size, lr=asked.lr, weight_decay=asked.weight_decay),
        seed=asked.seed,
    )


def pretrained(asked: Pretrain, model: str, settings: RunSettings, device: str) -> Path:
    """Return the file of the pre-trained weights; another process that makes the same is waited for."""
    folder = cache_directory() / "pretrained" / _key(asked, model, settings, device)
    name = f"{model} on {asked.data}"
    with _alone(folder, name):
        if not _finished(folder):
            _pretrain(asked, name, settings, device, folder)
    return folder / MODEL_FILE


def _key(asked: Pretrain, model: str, settings: RunSettings, device: str) -> str:
    """Return a hash of all that the weights depend on."""
    facts = {
        "form": _FORM,
        "asked": repr(asked),
        "model": model,
        "task": settings.task.describe(),
        "data": settings.federation.fingerprint(),
        "device": device,
        "machine": [platform.machine(), torch.backends.cpu.get_cpu_capability()],
        "versions": [__version__, torch.__version__],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _finished(folder: Path) -> bool:
    begun = (folder / "manifest.json").exists()
    return begun and "end" in read_manifest(folder) and (folder / MODEL_FILE).exists()


def _pretrain(asked: Pretrain, name: str, settings: RunSettings, device: str, folder: Path) -> None:
    """Train, or go on after an interruption, and show progress."""
    before = len(read_rows(folder))
    goes_on = f", which goes on after epoch {before}" if before else ""
    epochs = "1 epoch" if asked.epochs == 1 else f"{asked.epochs} epochs"
    tell(f"pre-training {name} for {epochs}{goes_on}, kept in {folder}")
    execution = Execution(engine="serial", threads=1, device=device, checkpoint_every=1)
    try:
        run(settings, execution, folder, resume=True, callbacks=_epochs_told(name, asked.epochs, before))
    except Diverged as problem:
        raise ConfigError(
            f"pre-training diverged in epoch {problem.round + 1}: lower its learning rate, as in "
            f"lr={asked.lr / 10:g}"
        ) from None
    except Stopped:  # of this, not of the run: no round of it was begun
        tell(f"pre-training {name} is stopped: the next run goes on with it")
        raise KeyboardInterrupt from None


def _epochs_told(name: str, epochs: int, before: int) -> Callable[[Mapping[str, Any]], None]:
    time_left = TimeLeft(epochs)
    for _ in range(before):
        time_left.count(now=False)

    def told(row: Mapping[str, Any]) -> None:
        time_left.count()
        score = shown_score(row) or f"train loss {row['train_loss']:.4f}"
        tell(f"pre-training {name}: epoch {row['round'] + 1} of {epochs}, {score}{time_left}")

    return told


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Keep other processes from making the same meanwhile."""
    lock = folder.with_suffix(".lock")
    try:
        with storage_errors(lock):
            lock.parent.mkdir(parents=True, exist_ok=True)
            file = lock.open("w")
    except StorageError as problem:
        raise StorageError(f"{problem}: XDG_CACHE_HOME names where pre-trained weights are kept") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"waiting for another process that is pre-training {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tell(text: str) -> None:
    """Print a line on the standard error: above a live display, which takes what is printed there."""
    print(text, file=sys.stderr, flush=True)
