"""FedSAGD's logistic column at full length, every method with settings searched on validation data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from fedkeel.papers.recipes.claims import NOTHING, better
from fedkeel.papers.recipes.fedsagd import settings as printed
from fedkeel.papers.recipes.fedsagd.table2 import TABLE2
from fedkeel.papers.recipes.recipe import (
    Column,
    Line,
    PaperTable,
    Recipe,
    RecipeScale,
    Settings,
    Setup,
    smoke_scale,
)
from fedkeel.papers.recipes.rethinking.settings import SWITCH, TWO_STAGES

SETUP = "mnist"
RATES = (0.1, 0.01, 0.001)  # the grid of A.3, as far as our copy of it can be read
_MU = ("1", "0.01", "0.001")
_ALPHA = ("0.001", "0.01", "0.02", "0.1")
_BETA = ("0.01", "0.02", "0.1")  # of FedInit, which is not in this paper: N/C, twice that, the authors' code
FEDINIT = "FedInit"
_GLOBAL = ("FedANAG", "FedACG")

# A text with {} for the value that is searched beside the rate, and its values.
SEARCHED: dict[str, tuple[str, tuple[str, ...]]] = {
    **{row: (method, ()) for row, method in printed.METHODS.items()},
    "FedProx": ("FedProx(mu={})", _MU),
    "FedDyn": ("FedDyn(alpha={})", _ALPHA),
    "FedAdam": ("FedAdam(lr={})", ("0.1", "0.01", "0.001")),
    printed.OURS: ("FedSAGD(beta=0.9, lam={}, mu=0.001)", _MU),
    FEDINIT: ("FedInit(beta={})", _BETA),
    TWO_STAGES: (f"stages((FedDyn(alpha={{}}), {SWITCH}), FedAvg)", _ALPHA),
}


class GridPoint(NamedTuple):
    """A method with values of the grid; `row` is the method's row in the table."""

    row: str
    method: str
    rate: float

    @property
    def name(self) -> str:
        """Return the name of its row in the search."""
        return f"{self.method}, rate {self.rate:g}"

    @property
    def line(self) -> Line:
        """Return what it trains."""
        return Line(self.method, {"work.lr": self.rate})


def grid_points() -> Iterator[GridPoint]:
    """Return all that is tried, method by method."""
    for row, (text, values) in SEARCHED.items():
        for value in values or ("",):
            for rate in RATES:
                yield GridPoint(row, text.replace("{}", value), rate)


# The best of each method on the validation data of `ours/logistic-search`, the first where several are equal.
# A test reads them off the histories in docs/results/logistic.
_BEST = (
    ("FedAvg", "FedAvg", 0.01),
    ("FedProx", "FedProx(mu=1)", 0.01),
    ("FedDyn", "FedDyn(alpha=0.1)", 0.001),
    ("SCAFFOLD", "SCAFFOLD", 0.01),
    ("MimeLite", "MimeLite(beta=0.2)", 0.01),
    ("FedAvgM", "FedAvgM(beta=0.9)", 0.001),
    ("FedAdam", "FedAdam(lr=0.001)", 0.01),
    ("FedCM", "FedCM(alpha=0.1)", 0.001),
    ("FedLNAG", "FedLNAG(beta=0.9)", 0.001),
    ("FedANAG", "FedANAG(beta=0.9)", 0.001),
    ("FedACG", "FedACG(lam=0.9)", 0.001),
    (printed.OURS, "FedSAGD(beta=0.9, lam=1, mu=0.001)", 0.001),
    (FEDINIT, "FedInit(beta=0.01)", 0.001),
    (TWO_STAGES, f"stages((FedDyn(alpha=0.001), {SWITCH}), FedAvg)", 0.001),
)
CHOSEN = {row: GridPoint(row, method, rate) for row, method, rate in _BEST}

_MNIST: Settings = {**printed.EMNIST, **printed.MNIST}
_ASSUMED = (
    "MNIST in the place of EMNIST-L, which was not at hand: 625 clients of 96 pictures, 125 of which never "
    "take part, leave the 500 of 96 that are printed. Levels and targets are not comparable, orders are.",
    "The grid is that of A.3: rates 0.1, 0.01, 0.001; FedProx's μ and FedSAGD's λ of 1, 0.01, 0.001; "
    "FedDyn's α of 0.001, 0.01, 0.02, 0.1. Momenta (0.9; FedCM 0.1, MimeLite 0.2) and FedSAGD's μ = 0.001 "
    "are printed and not searched. FedAdam's server rate is searched over the same rates as the clients'.",
    "FedInit and FedDyn→FedAvg are not in the paper: β of 0.01 (N/C), 0.02 and 0.1, and the switch after 75 "
    "% of the rounds, as in theirs.",
    *printed.ASSUMED,
)

SEARCH = Recipe(
    name="ours/logistic-search",
    title="The grid of FedSAGD's A.3 for fourteen methods on MNIST, logistic, by validation accuracy",
    setups={
        SETUP: Setup(
            {**_MNIST, "rounds": 500, "eval_every": 50, "data.validation": 0.1},
            {one.name: one.line for one in grid_points()},
        )
    },
    tables=(PaperTable((Column("validation accuracy", SETUP, "last:150 of validation_accuracy (max)"),)),),
    claims=(),
    assumptions=(
        "A tenth of each client's pictures is held out for validation; the mean accuracy after "
        "400, 450 and 500 rounds decides, with one seed. The test set plays no part.",
        *_ASSUMED,
    ),
    decided_by=(NOTHING,),
    seeds=1,
    cpu=RecipeScale(note="the whole grid, 500 rounds of each, one seed", seeds=1),
)


def _with_smoke(recipe: Recipe, rows: tuple[str, ...] | None = None) -> Recipe:
    """Return a recipe whose smoke scale holds out no clients, and runs only some rows."""
    smoke = smoke_scale(recipe)
    return recipe.changed(smoke=replace(smoke, settings={**smoke.settings, "data.held_out": 0}, rows=rows))


SEARCH = _with_smoke(SEARCH, tuple(one.name for one in grid_points() if one.row in ("FedAvg", FEDINIT)))

_PRINTED = {"EMNIST 78": "rounds_to:0.78", "EMNIST 80": "rounds_to:0.80", "EMNIST top(%)": "top"}
_ROUNDS, _TOP = ("EMNIST 78", "EMNIST 80"), "EMNIST top(%)"
_MOMENTUM = ("FedAvgM", "FedANAG", "FedACG", printed.OURS)


def _numbers() -> str:
    """Return the column as Table 2 prints it."""
    found = TABLE2.tables[0].printed
    return "\n".join(
        f"{row} | {' '.join(numbers[heading].text for heading in _PRINTED)}" for row, numbers in found.items()
    )


LOGISTIC = Recipe(
    name="ours/logistic",
    title="FedSAGD's Table 2, the logistic column at full length on MNIST, fourteen methods, each tuned",
    setups={
        SETUP: Setup(
            {**_MNIST, "rounds": 2000, "eval_every": 2}, {row: one.line for row, one in CHOSEN.items()}
        )
    },
    tables=(
        PaperTable(tuple(Column(heading, SETUP, rule) for heading, rule in _PRINTED.items()), _numbers()),
    ),
    claims=(
        better("FedSAGD has the highest top accuracy", printed.OURS, (), _TOP),
        better("FedSAGD needs the fewest rounds to both targets", printed.OURS, (), *_ROUNDS),
        better(
            "Global momentum alone (FedCM, FedACG, FedANAG) stays below FedSAGD in top accuracy",
            printed.OURS,
            ("FedCM", "FedACG", "FedANAG"),
            _TOP,
        ),
        better("Local momentum (FedLNAG) stays below global (FedANAG, FedACG)", _GLOBAL, "FedLNAG", _TOP),
        better("Momentum reaches both targets before FedAvg", _MOMENTUM, "FedAvg", *_ROUNDS),
        better("FedInit's relaxed start improves on FedAvg in top accuracy", FEDINIT, "FedAvg", _TOP),
        better("FedDyn→FedAvg ends above FedAvg in top accuracy", TWO_STAGES, "FedAvg", _TOP),
        better("FedDyn→FedAvg ends above FedDyn in top accuracy", TWO_STAGES, "FedDyn", _TOP),
    ),
    assumptions=(
        "Every method has the rate and the coefficient that were best for it on validation data "
        "(`ours/logistic-search`); evaluated every second round, so rounds to a target are known to two.",
        *_ASSUMED,
    ),
    decided_by=(NOTHING,),
    seeds=5,
    cpu=RecipeScale(
        note="2,000 rounds as in the paper, on MNIST; the targets are 90 and 91.5 % in place of 78 and 80 %, "
        "chosen by the validation accuracies of the search before any of these runs",
        seeds=5,
        measures={"EMNIST 78": "rounds_to:0.90", "EMNIST 80": "rounds_to:0.915", "EMNIST top(%)": "top"},
    ),
)
LOGISTIC = _with_smoke(LOGISTIC)
