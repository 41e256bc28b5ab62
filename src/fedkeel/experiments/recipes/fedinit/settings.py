"""What FedInit's tables and figures share: data, models, rounds, methods, and what the paper leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedkeel.experiments.recipes.recipe import Line, Settings, Setup

RESNET, VGG = "resnet18_gn", "vgg11"
CIFAR10, CIFAR100 = "cifar10", "cifar100"
SPLITS = ("10%-100 Dir-0.6", "10%-100 Dir-0.1", "5%-200 Dir-0.6", "5%-200 Dir-0.1")
FEDINIT = "FedInit"

# "all results are first smoothed by the convolution filter and then we select the maximization value in the
# last 50 communication rounds" (section 5.1)
SMOOTHED = "smoothed:50"

_SHARED: Settings = MappingProxyType(
    {
        "data.noise": ["ChannelGains(0.2)", "ClassBrightness(0.1)"],
        "data.augment": "Augment(flip=True, pad=4)",
        "work.epochs": 5,
        "work.lr": 0.1,
        "work.lr_decay": 0.998,
        "work.weight_decay": 0.001,
        "eval_every": 1,
    }
)
_PARTICIPATION: Mapping[str, Settings] = MappingProxyType(
    {
        "10%-100": {"data.clients": 100, "cohort": 10, "work.batch_size": 50},
        "5%-200": {"data.clients": 200, "cohort": 10, "work.batch_size": 25},
    }
)
BETA = MappingProxyType({"10%-100": 0.1, "5%-200": 0.05})
_ROUNDS = MappingProxyType({CIFAR10: 500, CIFAR100: 800})

BASELINES: Mapping[str, str | Line] = MappingProxyType(
    {
        "FedAvg": "FedAvg",
        "FedAdam": "FedAdam(lr=0.1, tau=0.01)",
        "FedSAM": "FedSAM(rho=0.1)",
        "SCAFFOLD": "SCAFFOLD",
        "FedDyn": Line("FedDyn(alpha=0.1)", {"work.lr_decay": 0.9995}),
        "FedCM": "FedCM(alpha=0.1)",
    }
)
OTHERS = tuple(BASELINES)

# Of the cpu scales: the model above all is not the paper's. One local epoch is ten steps.
SMALL: Settings = MappingProxyType(
    {
        "model.name": "mlp",
        "data.augment": None,
        "rounds": 200,
        "work.epochs": 1,
        "eval_every": 5,
        "engine": "serial",
        "threads": 1,
    }
)
SMALL_NOTE = (
    "a multi-layer perceptron of 64 units instead of {model}, 200 rounds instead of {rounds}, one local "
    "epoch instead of five, no augmentation, evaluated every fifth round; clients, cohort, split, noise, "
    "batch size, rate, decay and weight decay are the paper's. Accuracies are far lower."
)


def settings(split: str, data: str = CIFAR10, model: str = RESNET) -> dict[str, Any]:
    """Return the settings of a column such as "5%-200 Dir-0.1"."""
    participation, concentration = split.split(" Dir-")
    return {
        "data.name": data,
        "data.split": f"DirichletByClient({concentration}, replacement=True)",
        **_PARTICIPATION[participation],
        "model.name": model,
        "rounds": _ROUNDS[data],
        **_SHARED,
    }


def methods(split: str) -> dict[str, str | Line]:
    """Return the seven methods of the tables; β of FedInit is the share of the clients in a round."""
    return {**BASELINES, FEDINIT: f"FedInit(beta={BETA[split.split(maxsplit=1)[0]]:g})"}


def relaxed_methods(split: str) -> dict[str, str | Line]:
    """Return the methods with relaxed initialisation, under their own names; FedAvg's is FedInit."""
    beta = BETA[split.split(maxsplit=1)[0]]
    made: dict[str, str | Line] = {}
    for row, given in BASELINES.items():
        line = Line(given) if isinstance(given, str) else given
        text = f"FedInit(beta={beta:g})" if row == "FedAvg" else f"relaxed({line.method}, beta={beta:g})"
        made[row] = Line(text, line.settings)
    return made


def setup(
    split: str,
    data: str = CIFAR10,
    model: str = RESNET,
    *,
    lines: Mapping[str, str | Line] | None = None,
    more: Settings = MappingProxyType({}),
) -> Setup:
    """Return the runs of a column: its settings and further ones, with the methods of the tables."""
    return Setup({**settings(split, data, model), **more}, methods(split) if lines is None else lines)


# What the paper does not print.
ASSUMED_DATA = (
    "Strength of the noise: the paper gives none. Channels of a client are multiplied by 1 + 0.2·N(0, 1), "
    "the brightness of a class is shifted by 0.1·N(0, 1) of the range; the test set stays clean.",
    "“Sampling with replacement”: each client draws 1/C of the data set by its own class prior, from classes "
    "that are refilled.",
    "Augmentation (flip, 4-pixel pad and crop): the paper names none, the authors' public code "
    "(woodenchild95/FL-Simulator) has it.",
)
ASSUMED_WORK = (
    "Local work: the paper prints neither epochs nor batch size nor weight decay. 5 epochs, batches of 50 "
    "with 100 clients and of 25 with 200, and 0.001 are those of the authors' public code.",
    "Exactly 10 clients per round, drawn without replacement; clients have equal weights.",
)
ASSUMED_BETA = (
    "β is not printed (the poster: “specific relaxed coefficient β”). N/C is taken, 0.1 at 10 % and 0.05 at "
    "5 %: the largest for which docs/relaxed.md expects no divergence; the authors' public code has 0.1.",
)
ASSUMED_AGGREGATE = (
    "The server averages end models, as in Algorithm 1; the authors' public code adds the mean walk, "
    'relaxed(…, aggregate="walk").',
)
ASSUMED_METHODS = (
    "FedSAM's ρ = 0.1, FedDyn's α = 0.1, FedCM's α = 0.1 and FedAdam's β1 = 0.9, β2 = 0.99, τ = 0.01 are not "
    "printed: they are those of the authors' public code.",
    "“Global learning rate 1 except for FedAdam we use 0.1” is read as the server's rate of FedAdam; "
    "FedDyn's decay 0.9995 is kept with relaxed initialisation.",
)
ASSUMED_RESNET = ("ResNet-18-GN has torchvision's 7×7 stem and 2 groups, as in the authors' public code.",)
ASSUMED_VGG = (
    "VGG-11 has no normalisation and one linear layer after its convolutions: neither is described.",
)
ASSUMED_RULE = ("The width of the smoothing filter is not printed: a mean of 5 evaluations in succession.",)
ASSUMED = (
    *ASSUMED_DATA,
    *ASSUMED_WORK,
    *ASSUMED_AGGREGATE,
    *ASSUMED_RESNET,
    *ASSUMED_RULE,
)
