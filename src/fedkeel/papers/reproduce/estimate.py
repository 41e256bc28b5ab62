"""How long a recipe takes and how much memory it needs, before anything is run, and what is missing for it.

Seconds come from the sample gradients of a job and the measured speed of its model on one core
(`benchmarks/recipe_speeds.py` measures it anew); finished runs say it better, where there are some.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.files import cache_directory
from fedkeel.papers.recipes.recipe import Recipe
from fedkeel.papers.recipes.studies import BoundedRun, CountedCosts, RecipeStudy, StabilityCurves
from fedkeel.papers.reproduce.plan import RecipeJob, RecipePlan, method_of, settings_of

_LONG = 24 * 3600.0  # seconds from which a GPU is advised


class ModelSize(NamedTuple):
    """Seconds for 1,000 sample gradients on one core, for pictures of 32×32 pixels, and parameters."""

    seconds: float
    parameters: int


class DataSize(NamedTuple):
    """Training samples, test samples, bytes of a sample, its cost beside 32×32 pixels, and names of files."""

    train: int
    test: int
    bytes: int
    cost: float = 1.0
    files: tuple[str, ...] = ()


MODELS = {
    "logistic": ModelSize(0.007, 7_850),
    "mlp": ModelSize(0.035, 197_322),
    "cnn": ModelSize(1.8, 797_962),
    "lenet": ModelSize(0.19, 62_006),
    "resnet20": ModelSize(6.0, 269_722),
    "resnet18": ModelSize(9.5, 11_181_642),
    "resnet18_gn": ModelSize(9.8, 11_181_642),
    "resnet34": ModelSize(16.0, 21_289_802),
    "vgg11": ModelSize(20.0, 9_225_610),
    "char_lstm": ModelSize(1.5, 133_520),
}
DATA = {
    "cifar10": DataSize(
        50_000, 10_000, 3_072, files=("cifar10.npz", "cifar-10-python.tar.gz", "cifar-10-batches-py")
    ),
    "cifar100": DataSize(
        50_000, 10_000, 3_072, files=("cifar100.npz", "cifar-100-python.tar.gz", "cifar-100-python")
    ),
    "mnist": DataSize(
        60_000,
        10_000,
        784,
        files=("mnist.npz", "mnist/train-images-idx3-ubyte.gz", "MNIST/raw/train-images-idx3-ubyte"),
    ),
    "emnist-l": DataSize(
        48_000, 8_000, 784, files=("emnist-letters.npz", "emnist/gzip.zip", "gzip.zip", "EMNIST/raw/gzip.zip")
    ),
    "tiny-imagenet": DataSize(
        100_000,
        10_000,
        12_288,
        4.0,
        files=("tiny-imagenet.npz", "tiny-imagenet-200", "tiny-imagenet-200.zip"),
    ),
    "shakespeare": DataSize(200_000, 40_000, 640, files=("shakespeare.json", "shakespeare")),
    "digits": DataSize(1_437, 360, 256),
}
_LEAST_MEMORY = 0.4e9  # bytes of a process with PyTorch
_STEP = 0.0005  # seconds of a local step beside its gradient
_LEAST_ROUND = 0.01  # seconds: dispatching, saving, evaluating little
_STACKED = (
    0.2  # of serial's seconds, where all clients step at once; recipes ask for it with small models only
)


class RecipeNeeds(NamedTuple):
    """Seconds on this machine's cores, bytes of memory, and what is missing: data sets, or a GPU."""

    seconds: float
    memory: float
    missing: tuple[str, ...]


def job_seconds(job: RecipeJob) -> float:
    """Return the seconds of a job on one core."""
    return _study_seconds(job.study, job.table)


def seconds_of(table: Mapping[str, Any]) -> float:
    """Return the seconds of an experiment on one core, from its nested table."""
    data, model = _sizes(table)
    rounds = int(table.get("rounds", 50))
    if data is None or model is None:
        return float(rounds)
    clients = _clients(table)
    cohort = table.get("cohort", 10)
    active = cohort if isinstance(cohort, int) else max(1.0, cohort * clients)
    work, each = table.get("work", {}), data.train / clients
    batch = work.get("batch_size", 20)
    gradients = (
        work["steps"] * (each if batch == "all" else min(batch, each))
        if "steps" in work
        else work.get("epochs", 5) * each
    )
    steps = active * gradients / (each if batch == "all" else min(batch, each))
    faster = _STACKED if table.get("engine") == "stacked" else 1.0
    samples = faster * active * gradients + data.test / 3 / table.get("eval_every", 1)
    each_round = _LEAST_ROUND + faster * _STEP * steps + samples / 1000 * model.seconds * data.cost
    seconds: float = rounds * each_round
    return seconds


def needs(recipe: Recipe, scale_name: str, cores: int | None = None) -> RecipeNeeds:
    """Return what a recipe takes at a scale, by its settings alone: nothing is imported or loaded."""
    scale, at_once = recipe.scale(scale_name), cores or os.cpu_count() or 1
    runs = {}
    for name in recipe.setups if scale.setups is None else scale.setups:
        setup = recipe.setups[name]
        for row in setup.lines:
            if scale.rows is None or row in scale.rows:
                table, study = settings_of(recipe, scale, name, row)
                runs[repr((table, method_of(recipe, scale, name, row), study))] = (table, study)
    seconds = sum(_study_seconds(study, table) for table, study in runs.values()) * scale.seeds / at_once
    trained = [table for table, study in runs.values() if not isinstance(study, CountedCosts | BoundedRun)]
    names = sorted({_data_name(table) for table in trained})
    missing = [name for name in names if not is_there(name)]
    missing += ["a GPU"] if seconds > _LONG else []
    return RecipeNeeds(seconds, at_once * max(map(_memory, trained), default=_LEAST_MEMORY), tuple(missing))


def _study_seconds(study: RecipeStudy | None, table: Mapping[str, Any]) -> float:
    if isinstance(study, CountedCosts | BoundedRun):
        return 20.0
    if isinstance(study, StabilityCurves):  # its runs are coupled, on the serial engine whatever is asked for
        return seconds_of({**table, "engine": "serial"}) * (1 + study.pairs)
    return seconds_of(table)


def _sizes(table: Mapping[str, Any]) -> tuple[DataSize | None, ModelSize | None]:
    model = table.get("model", {}).get("name", "mlp")
    return DATA.get(_data_name(table)), MODELS.get(model)


def _data_name(table: Mapping[str, Any]) -> str:
    return str(table.get("data", {}).get("name", "digits"))


def _clients(table: Mapping[str, Any]) -> int:
    clients = table.get("data", {}).get("clients", 50)
    return 100 if clients == "all" else int(clients)


def plan_seconds(plan: RecipePlan, finished: Mapping[Any, Any], workers: int) -> float:
    """Return the seconds that are left of a plan; finished runs of a setup tell what its others take."""
    measured: dict[str, list[float]] = {}
    for directory, job in plan.distinct.items():
        rows = finished[directory].rows if directory in finished else []
        spent = sum(row.get("seconds") or 0.0 for row in rows)
        if spent:
            measured.setdefault(job.key.setup, []).append(spent / job_seconds(job))
    left = 0.0
    for directory, job in plan.distinct.items():
        if directory not in finished:
            left += job_seconds(job) * statistics.fmean(measured.get(job.key.setup, [1.0]))
    return left / workers


def is_there(name: str) -> bool:
    """Tell whether a data set is on this machine, or made without files."""
    files = DATA[name].files if name in DATA else ()
    named = os.environ.get("FEDKEEL_DATA")
    own = os.environ.get("FEDKEEL_CACHE")
    folders = [Path(folder).expanduser() for folder in (named, own) if folder]
    folders += [] if own else [cache_directory()]
    return not files or any((folder / file).exists() for folder in folders for file in files)


def _memory(table: Mapping[str, Any]) -> float:
    """Return the bytes of a run: PyTorch, the data as floats, the model, and a vector for each client."""
    data, model = _sizes(table)
    if data is None or model is None:
        return _LEAST_MEMORY
    vectors = 4.0 * model.parameters * (_clients(table) + 12)
    return _LEAST_MEMORY + 5.0 * data.bytes * (data.train + data.test) + vectors
