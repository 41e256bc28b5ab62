"""How long a recipe takes and how much memory it needs, before anything is run, and what is missing for it.

Seconds come from the sample gradients of a job and the measured speed of its model on one core
(`benchmarks/recipe_speeds.py` measures it anew); finished runs say it better, where there are some.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.experiments.recipes.recipe import Recipe, merged
from fedkeel.experiments.recipes.studies import BoundedRun, CountedCosts, StabilityCurves
from fedkeel.experiments.reproduce.plan import RecipeJob, RecipePlan, nested
from fedkeel.files import cache_directory

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
    "logistic": ModelSize(0.02, 7_850),
    "mlp": ModelSize(0.02, 4_810),
    "cnn": ModelSize(0.5, 797_962),
    "resnet20": ModelSize(3.0, 272_474),
    "resnet18": ModelSize(30.0, 11_173_962),
    "resnet18_gn": ModelSize(30.0, 11_173_962),
    "resnet34": ModelSize(60.0, 21_282_122),
    "vgg11": ModelSize(8.0, 9_231_114),
    "char_lstm": ModelSize(8.0, 134_144),
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
_LEAST_ROUND = 0.01  # seconds: dispatching, saving, evaluating little


class RecipeNeeds(NamedTuple):
    """Seconds on this machine's cores, bytes of memory, and what is missing: data sets, or a GPU."""

    seconds: float
    memory: float
    missing: tuple[str, ...]


def job_seconds(job: RecipeJob) -> float:
    """Return the seconds of a job on one core."""
    times = {StabilityCurves: 1 + getattr(job.study, "pairs", 0)}
    if isinstance(job.study, CountedCosts | BoundedRun):
        return 20.0
    return seconds_of(job.table) * times.get(type(job.study), 1)


def seconds_of(table: Mapping[str, Any]) -> float:
    """Return the seconds of an experiment on one core, from its nested table."""
    data, model = DATA.get(table["data"]["name"]), MODELS.get(table["model"]["name"])
    rounds = table["rounds"]
    if data is None or model is None:
        return float(rounds)
    clients = table["data"].get("clients", 50)
    clients = 100 if clients == "all" else clients
    cohort = table["cohort"]
    active = cohort if isinstance(cohort, int) else max(1.0, cohort * clients)
    work, each = table.get("work", {}), data.train / clients
    batch = work.get("batch_size", 20)
    gradients = (
        work["steps"] * (each if batch == "all" else min(batch, each))
        if "steps" in work
        else work.get("epochs", 5) * each
    )
    samples = active * gradients + data.test / 3 / table.get("eval_every", 1)
    return rounds * (_LEAST_ROUND + samples / 1000 * model.seconds * data.cost)


def needs(recipe: Recipe, scale_name: str, cores: int | None = None) -> RecipeNeeds:
    """Return what a recipe takes at a scale, by its settings alone: nothing is imported or loaded."""
    scale = recipe.scale(scale_name)
    setups = recipe.setups if scale.setups is None else scale.setups
    seconds, memory, names = 0.0, 0.0, set()
    seen = set()
    for name in setups:
        setup = recipe.setups[name]
        for row in setup.lines:
            if scale.rows is not None and row not in scale.rows:
                continue
            own = {} if scale.setups is None else scale.setups[name]
            line = setup.line(row)
            parts = (setup.settings, scale.settings, own, line.settings, scale.lines.get(row, {}))
            flat = merged([{"rounds": 50, "cohort": 10}, *parts])
            flat = {"data.name": "digits", "model.name": "mlp", **flat}
            pairs = flat.get("study.pairs", getattr(setup.study, "pairs", 0))
            key = repr((sorted(flat.items(), key=str), line.method, type(setup.study)))
            if key in seen:
                continue
            seen.add(key)
            if isinstance(setup.study, CountedCosts | BoundedRun):
                seconds += 20.0 * scale.seeds
                continue
            table = nested({key: value for key, value in flat.items() if not key.startswith("study.")})
            seconds += (
                seconds_of(table) * scale.seeds * (1 + pairs * isinstance(setup.study, StabilityCurves))
            )
            memory = max(memory, _memory(table))
            names.add(table["data"]["name"])
    at_once = cores or os.cpu_count() or 1
    missing = [name for name in sorted(names) if not is_there(name)]
    if seconds / at_once > _LONG:
        missing.append("a GPU")
    return RecipeNeeds(seconds / at_once, memory * at_once, tuple(missing))


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
    data, model = DATA.get(table["data"]["name"]), MODELS.get(table["model"]["name"])
    if data is None or model is None:
        return 0.5e9
    clients = table["data"].get("clients", 50)
    clients = 100 if clients == "all" else clients
    vectors = 4.0 * model.parameters * (min(clients, math.inf) + 12)
    return 0.4e9 + 5.0 * data.bytes * (data.train + data.test) + vectors
