"""FedSAGD's Tables 2 and 11: rounds to two targets and top accuracy of twelve methods on four data sets."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import DECAY, EXPOSURE, LEVEL, PROXIMAL, Ordered, better
from fedkeel.papers.recipes.fedsagd import settings as printed
from fedkeel.papers.recipes.recipe import (
    ALPHA_TIMES,
    Column,
    PaperTable,
    Recipe,
    RecipeScale,
    Setup,
)

SETUPS = {
    "cifar10": Setup(printed.CIFAR10, printed.METHODS),
    "cifar100": Setup(printed.CIFAR100, printed.METHODS),
    "emnist": Setup(printed.EMNIST, printed.EMNIST_METHODS),
    "shakespeare": Setup(printed.SHAKESPEARE, printed.SHAKESPEARE_METHODS),
}

_TARGETS = PaperTable(
    (
        Column("CIFAR-10 75", "cifar10", "rounds_to:0.75"),
        Column("CIFAR-10 81", "cifar10", "rounds_to:0.81"),
        Column("CIFAR-10 top(%)", "cifar10", "top"),
        Column("CIFAR-100 40", "cifar100", "rounds_to:0.40"),
        Column("CIFAR-100 45", "cifar100", "rounds_to:0.45"),
        Column("CIFAR-100 top(%)", "cifar100", "top"),
        Column("EMNIST 78", "emnist", "rounds_to:0.78"),
        Column("EMNIST 80", "emnist", "rounds_to:0.80"),
        Column("EMNIST top(%)", "emnist", "top"),
        Column("Shakespeare 45", "shakespeare", "rounds_to:0.45"),
        Column("Shakespeare 50", "shakespeare", "rounds_to:0.50"),
        Column("Shakespeare top(%)", "shakespeare", "top"),
    ),
    """
    FedAvg        |  572 2000+ 78.64  2000+ 2000+ 40.79  102  271 81.01   176   516 51.61
    FedProx       |  572 2000+ 78.88   1207 2000+ 41.74   46  154 81.83   194   522 51.54
    FedDyn        |  354 2000+ 80.14   1512 2000+ 41.89   65  146 81.02   231   489 51.77
    SCAFFOLD      |  364  1535 81.34   1308 2000+ 42.24   60  141 81.55   180   465 52.04
    MimeLite      |  439  1959 81.02    578  1050 47.59   57  129 81.91   177   477 51.71
    FedAvgM       |  489  1522 81.86    714  1197 48.31   50  151 81.92    84   313 52.32
    FedAdam       | 1295 2000+ 78.29   1458  1877 44.51   61  162 81.58    99   359 52.30
    FedCM         |  530  1891 81.09   1265  1718 45.02  277 1101 80.16 2000+ 2000+ 39.14
    FedLNAG       |  497 2000+ 79.60   1031  1602 42.31   41  196 81.92    93   296 52.23
    FedANAG       |  338   882 83.51    673  1701 45.32   38  181 82.01    68   183 52.46
    FedACG        |  338   891 83.52    582  1139 50.59   36  155 82.02    72   214 52.52
    FedSAGD(ours) |  287   851 84.05    536   852 54.53   30  131 82.24    56   147 53.03
    """,
)
TOPS = tuple(column.heading for column in _TARGETS.columns if column.measure == "top")
ROUNDS = tuple(column.heading for column in _TARGETS.columns if column.measure != "top")
TARGETS = {"CIFAR-10": (75, 81), "CIFAR-100": (40, 45), "EMNIST": (78, 80), "Shakespeare": (45, 50)}

ASSUMED = (
    *printed.ASSUMED,
    *printed.ASSUMED_CIFAR,
    *printed.ASSUMED_CIFAR100,
    *printed.ASSUMED_EMNIST,
    *printed.ASSUMED_SHAKESPEARE,
)

# What drives the methods here: proximal terms, FedSAGD's decay, FedDyn's memories.
DRIVEN_BY = (PROXIMAL, DECAY, EXPOSURE)
CPU_SETUPS = {
    "emnist": {**printed.MNIST, ALPHA_TIMES: 4},
    "cifar10": {**printed.SMALL_CIFAR10, ALPHA_TIMES: 20},
}
CPU_NOTE = (
    f"{printed.MNIST_NOTE}, 500 rounds of 2,000 with four times FedDyn's α. {printed.SMALL_CIFAR10_NOTE}, "
    "with 20 times FedDyn's α. "
    "CIFAR-100 (a ResNet-18) and Shakespeare (an LSTM) take too long for two cores and are left out"
)
_CPU_TARGETS = (
    "The targets were chosen after trial runs (MNIST: seed 0 of all methods, seed 1 of some; CIFAR-10: "
    "FedSAGD, seed 0) so that they can be reached: 88 and 90 % on MNIST, as far below the best top accuracy "
    "(92) as 78 and 80 are in the paper; 30 and 40 % on CIFAR-10, where FedSAGD has 43 % after 30 rounds"
)

TABLE2 = Recipe(
    name="fedsagd/table2",
    title="Rounds to two targets, and top accuracy, of twelve methods on four data sets",
    setups=SETUPS,
    tables=(_TARGETS,),
    claims=(
        better("FedSAGD has the highest top accuracy on every data set", printed.OURS, (), *TOPS),
        better(
            "FedSAGD needs the fewest rounds to every target",
            printed.OURS,
            (),
            *ROUNDS,
            decided_by=(*DRIVEN_BY, *LEVEL),
        ),
        better(
            "Global momentum alone (FedCM, FedACG, FedANAG) generalises less well than FedSAGD",
            printed.OURS,
            ("FedCM", "FedACG", "FedANAG"),
            *TOPS,
        ),
        better(
            "Local momentum (FedLNAG) stays below global momentum (FedANAG, FedACG) in top accuracy",
            ("FedANAG", "FedACG"),
            "FedLNAG",
            *TOPS,
        ),
        better(
            "Momentum (FedAvgM, FedANAG, FedACG, FedSAGD) reaches every target before FedAvg",
            ("FedAvgM", "FedANAG", "FedACG", printed.OURS),
            "FedAvg",
            *ROUNDS,
            decided_by=(*DRIVEN_BY, *LEVEL),
        ),
    ),
    assumptions=(
        *ASSUMED,
        "The text says that FedSAGD is better in 'almost all scenarios'; the claim about rounds is stated "
        "without 'almost', and one cell of the paper contradicts it: MimeLite reaches 80 % on EMNIST in "
        "129 rounds.",
        "Three cells of CIFAR-100 contradict the tops beside them: FedAvg has a top of 40.79 but never "
        "reaches 40, FedAdam (44.51) and FedLNAG (42.31) reach 45. They are typed as printed.",
    ),
    decided_by=DRIVEN_BY,
    seeds=5,
    cpu=RecipeScale(
        note=f"{CPU_NOTE}. {_CPU_TARGETS}",
        seeds=3,
        setups=CPU_SETUPS,
        measures={
            "EMNIST 78": "rounds_to:0.88",
            "EMNIST 80": "rounds_to:0.90",
            "CIFAR-10 75": "rounds_to:0.30",
            "CIFAR-10 81": "rounds_to:0.40",
        },
    ),
)

_DATASETS = {"EMNIST": "emnist", "CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "Shakespeare": "shakespeare"}

TABLE11 = Recipe(
    name="fedsagd/table11",
    title="Top accuracy with its standard deviation over five seeds, twelve methods on four data sets",
    setups=SETUPS,
    tables=(
        PaperTable(
            tuple(Column(heading, setup, "top") for heading, setup in _DATASETS.items()),
            """
            FedSAGD(ours) | 82.24±0.07 84.05±0.13 54.53±0.71 53.03±0.11
            FedANAG       | 82.01±0.18 83.51±0.17 45.32±0.85 52.46±0.14
            FedACG        | 82.02±0.16 83.52±0.16 50.59±0.92 52.52±0.13
            FedLNAG       | 81.92±0.35 79.60±0.47 42.31±1.64 52.23±0.11
            FedCM         | 80.16±0.82 81.09±0.81 45.02±1.92 39.24±1.89
            FedAdam       | 81.58±0.60 78.29±0.34 44.51±1.34 52.30±0.18
            FedAvgM       | 81.92±0.19 81.86±0.37 48.31±1.67 52.32±0.08
            MimeLite      | 81.91±0.14 81.02±0.23 47.59±0.80 51.71±0.31
            SCAFFOLD      | 81.55±0.15 81.34±0.34 42.24±1.18 52.04±0.25
            FedDyn        | 81.02±0.65 80.14±0.61 41.80±1.19 51.77±0.23
            FedProx       | 81.83±0.56 78.88±0.51 41.74±1.12 51.54±0.21
            FedAvg        | 81.01±0.53 78.64±0.39 40.79±1.34 51.61±0.19
            """,
        ),
    ),
    claims=(
        better("FedSAGD has the highest top accuracy on every data set", printed.OURS),
        Ordered(
            "FedACG comes next, and FedANAG below it", (printed.OURS, "FedACG", "FedANAG"), tuple(_DATASETS)
        ),
    ),
    assumptions=(
        *ASSUMED,
        "The runs are those of Table 2. Two tops differ between the two tables and are typed as printed: "
        "FedCM on Shakespeare (39.14 there) and FedDyn on CIFAR-100 (41.89 there).",
        "The printed table has the data sets in rows; here methods are rows, and FedSAGD is called as in "
        "Table 2.",
        "± is taken as the standard deviation, although the caption says variance.",
    ),
    decided_by=DRIVEN_BY,
    seeds=5,
    cpu=RecipeScale(note=CPU_NOTE, seeds=3, setups=CPU_SETUPS),
)
