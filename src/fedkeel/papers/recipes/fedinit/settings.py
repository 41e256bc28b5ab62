"""What FedInit's tables and figures share: data, models, rounds, methods, and what the paper leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedkeel.papers.recipes.recipe import (
    ALPHA_TIMES,
    PRINTED,
    Assumption,
    Line,
    Reading,
    Settings,
    Setup,
)

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
AUTHORS_BETA = 0.1  # the default of --beta in the authors' code, for every participation
# What the authors' public code does beside what is printed: server/server.py, client/*.py, train.py.
_AUTHORS: Settings = MappingProxyType(
    {
        "data.augment": "Augment(flip=True, pad=4, crop_probability=0.5, grey=True)",
        "sampling": "bernoulli",
        "work.clip": 10.0,
        "work.clip_on": "direction",
    }
)
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
_AUTHORS_FEDADAM = "FedAdam(lr=0.1, tau=0.01, v0=0)"


def baselines(reading: str = PRINTED) -> Mapping[str, str | Line]:
    """Return the other methods; FedAdam's second moment starts at zero in the authors' code."""
    return BASELINES if reading == PRINTED else {**BASELINES, "FedAdam": _AUTHORS_FEDADAM}


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
        ALPHA_TIMES: 5,  # a fifth of the local steps: α·η·K of a turn is the paper's
    }
)
SMALL_NOTE = (
    "a multi-layer perceptron of 64 units instead of {model}, 200 rounds instead of {rounds}, one local "
    "epoch instead of five, no augmentation, evaluated every fifth round; clients, cohort, split, noise, "
    "batch size, rate, decay and weight decay are the paper's. Accuracies are far lower."
)
SMALL_FEDDYN_NOTE = (
    "FedDyn's α is {times} times the paper's, which keeps its exposure: its clients take fewer steps."
)


def settings(split: str, data: str = CIFAR10, model: str = RESNET, reading: str = PRINTED) -> dict[str, Any]:
    """Return the settings of a column such as "5%-200 Dir-0.1"."""
    participation, concentration = split.split(" Dir-")
    return {
        "data.name": data,
        "data.split": f"DirichletByClient({concentration}, replacement=True)",
        **_PARTICIPATION[participation],
        "model.name": model,
        "rounds": _ROUNDS[data],
        **_SHARED,
        **({} if reading == PRINTED else _AUTHORS),
    }


def participation(split: str) -> str:
    """Return the part of a column's name that says how many clients take part."""
    return split.split(maxsplit=1)[0]


def beta_of(split: str, reading: str = PRINTED) -> float:
    """Return the β of a column: N/C, or the one of the authors' code."""
    return BETA[participation(split)] if reading == PRINTED else AUTHORS_BETA


def relaxed_text(method: str, beta: float, reading: str = PRINTED) -> str:
    """Return a method with relaxed initialisation: end models averaged as printed, walks in the code.

    In the authors' code the server of FedDyn still steps from the mean end model.
    """
    if reading == PRINTED:
        form = ""
    else:
        form = ', aggregate="walk"' + (', gamma="end"' if method.startswith("FedDyn") else "")
    if method == "FedAvg":
        return f"FedInit(beta={beta:g}{form})"
    return f"relaxed({method}, beta={beta:g}{form})"


def methods(split: str, reading: str = PRINTED) -> dict[str, str | Line]:
    """Return the seven methods of the tables."""
    return {**baselines(reading), FEDINIT: relaxed_text("FedAvg", beta_of(split, reading), reading)}


def relaxed_methods(split: str, reading: str = PRINTED) -> dict[str, str | Line]:
    """Return the methods with relaxed initialisation, under their own names; FedAvg's is FedInit."""
    made: dict[str, str | Line] = {}
    for row, given in baselines(reading).items():
        line = Line(given) if isinstance(given, str) else given
        text = relaxed_text(line.method, beta_of(split, reading), reading)
        made[row] = Line(text, line.settings)
    return made


def setup(
    split: str,
    data: str = CIFAR10,
    model: str = RESNET,
    *,
    lines: Mapping[str, str | Line] | None = None,
    more: Settings = MappingProxyType({}),
    reading: str = PRINTED,
) -> Setup:
    """Return the runs of a column: its settings and further ones, with the methods of the tables."""
    made = methods(split, reading) if lines is None else lines
    return Setup({**settings(split, data, model, reading), **more}, made)


# What the paper prints (section 5.1).
STATED = (
    "data.name",
    "data.split",
    "data.clients",
    "cohort",
    "model.name",
    "rounds",
    "work.lr",
    "work.lr_decay",
    "FedAvg.lr",
    "SCAFFOLD.lr",
    "FedCM.lr",
)

# What the paper does not print.
ASSUMED_DATA = (
    Assumption(
        "Strength of the noise: the paper gives none. Channels of a client are multiplied by 1 + 0.2·N(0, "
        "1), "
        "the brightness of a class is shifted by 0.1·N(0, 1) of the range; the test set stays clean.",
        "data.noise",
    ),
    Assumption(
        "“Sampling with replacement”: each client draws 1/C of the data set by its own class prior, from "
        "classes that are refilled.",
        "data.split",
    ),
    Assumption(
        "Augmentation (flip, 4-pixel pad and crop): the paper names none, the authors' public code "
        "(woodenchild95/FL-Simulator) has it.",
        "data.augment",
    ),
)
_LOCAL_WORK = Assumption(
    "Local work: the paper prints neither epochs nor batch size nor weight decay. 5 epochs, batches of 50 "
    "with 100 clients and of 25 with 200, and 0.001 are those of the authors' public code.",
    "work.epochs",
    "work.batch_size",
    "work.weight_decay",
    "work.last_batch",
)
ASSUMED_WORK = (
    _LOCAL_WORK,
    Assumption(
        "Exactly 10 clients per round, drawn without replacement; clients have equal weights. The authors' "
        "public code draws each client with probability N/C.",
        "sampling",
        "weighting",
    ),
    Assumption(
        "No clipping, since none is printed; the authors' public code clips every local direction to norm "
        "10.",
        "work.clip",
    ),
)
ASSUMED_BETA = (
    Assumption(
        "β is not printed (the poster: “specific relaxed coefficient β”). N/C is taken for every method, 0.1 "
        "at 10 % and 0.05 at 5 %: the largest for which docs/relaxed.md expects no divergence; the authors' "
        "public code has 0.1.",
        "Relaxed.beta",
        choice="β = N/C is ours",
    ),
)
ASSUMED_AGGREGATE = (
    Assumption(
        "The server averages end models, and a client that was never selected starts from x⁰, as in "
        'Algorithm 1; the authors\' public code adds the mean walk, relaxed(…, aggregate="walk").',
        "Relaxed.origin",
        "Relaxed.first",
        "Relaxed.gamma",
    ),
)
ASSUMED_METHODS = (
    Assumption(
        "FedSAM's ρ = 0.1, FedDyn's α = 0.1, FedCM's α = 0.1 and FedAdam's β1 = 0.9, β2 = 0.99, τ = 0.01 are "
        "not printed: they are those of the authors' public code; FedAdam's second moment starts at τ², "
        "as in "
        "its own paper.",
        "FedSAM.rho",
        "FedDyn.*",
        "FedCM.alpha",
        "FedAdam.*",
    ),
    Assumption("SCAFFOLD is its option II.", "SCAFFOLD.option"),
    Assumption(
        "“Global learning rate 1 except for FedAdam we use 0.1” is read as the server's rate of FedAdam.",
        "FedAdam.lr",
    ),
    Assumption("FedDyn's decay 0.9995 is kept with relaxed initialisation.", "FedDyn.*"),
)
ASSUMED_RESNET = (
    Assumption(
        "ResNet-18-GN has torchvision's 7×7 stem and 2 groups, as in the authors' public code.", "model.name"
    ),
)
ASSUMED_VGG = (
    Assumption(
        "VGG-11 has no normalisation and one linear layer after its convolutions: neither is described.",
        "model.name",
    ),
)
ASSUMED_RULE = (
    Assumption(
        "The width of the smoothing filter is not printed: a mean of 5 evaluations in succession.",
        "eval_every",
    ),
)
ASSUMED = (
    *ASSUMED_DATA,
    *ASSUMED_WORK,
    *ASSUMED_AGGREGATE,
    *ASSUMED_RESNET,
    *ASSUMED_RULE,
)

AUTHORS_SOURCE = (
    "the paper, and where it is silent the authors' public code, woodenchild95/FL-Simulator (server.py, "
    "FedDyn.py and train.py at commit 653ebb5; train.py had the same β = 0.1 at 1cfae2f before)."
)
# What the authors' code says of the same choices, and of some that the text makes otherwise.
AUTHORS_WORK = (
    _LOCAL_WORK,
    Assumption(
        "Each client takes part with probability N/C in each round, so cohorts vary; clients have equal "
        "weights; an empty cohort is drawn again.",
        "sampling",
        "weighting",
    ),
    Assumption(
        "Every local direction (gradient and correction, without the method's own α·y and weight decay) is "
        "clipped to norm 10.",
        "work.clip",
        "work.clip_on",
    ),
)
AUTHORS_RELAXED = (
    Assumption(
        "Walks are averaged: the server adds the mean of end − start to its model, where Algorithm 1 "
        "averages "
        "end models. The servers of FedDyn, FedSpeed and FedSMOO step from the mean end model. A client that "
        "was never selected starts from x⁰.",
        "Relaxed.origin",
        "Relaxed.first",
        "Relaxed.gamma",
    ),
    Assumption(
        "β = 0.1 for every method and every participation, the default of the code; the text prints none.",
        "Relaxed.beta",
    ),
)
AUTHORS_METHODS = (
    Assumption(
        "FedAdam's second moment starts at zero, without bias correction, where its own paper has τ²; "
        "FedSAM's ρ = 0.1, FedDyn's α = 0.1, FedCM's α = 0.1 and FedAdam's β1 = 0.9, β2 = 0.99, τ = 0.01 are "
        "the code's defaults.",
        "FedSAM.rho",
        "FedDyn.*",
        "FedCM.alpha",
        "FedAdam.*",
    ),
    *ASSUMED_METHODS[1:],
)
_AUTHORS_DATA = (
    *ASSUMED_DATA[:2],
    Assumption(
        "Augmentation as in the code: a flip and a crop with probability ½ each, 4 pixels of grey padded "
        "after normalisation.",
        "data.augment",
    ),
)
AUTHORS_ASSUMED = (*_AUTHORS_DATA, *AUTHORS_WORK, *AUTHORS_RELAXED, *ASSUMED_RESNET, *ASSUMED_RULE)


def authors(
    setups: Mapping[str, Setup],
    *assumptions: str,
    measures: Settings = MappingProxyType({}),
    panels: Any = None,
) -> Reading:
    """Return the reading of a recipe by the authors' code: its own assumptions, then those of all.

    What the recipe itself says of a setting takes the place of what is said of all recipes.
    """
    own = {key for one in assumptions for key in getattr(one, "covers", ())}
    general = [one for one in AUTHORS_ASSUMED if not own.issuperset(getattr(one, "covers", ("",)))]
    return Reading(
        source=AUTHORS_SOURCE,
        setups=setups,
        assumptions=(*assumptions, *general),
        measures=measures,
        panels=panels,
    )
