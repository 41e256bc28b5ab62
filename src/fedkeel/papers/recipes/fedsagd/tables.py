"""FedSAGD's Tables 3, 4 (heterogeneity, participation) and 8–10 (its own three coefficients), on CIFAR-10."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import LEVEL, Peaks, Similar, SmallerDrop, better
from fedkeel.papers.recipes.fedsagd import settings as printed
from fedkeel.papers.recipes.fedsagd.table2 import DRIVEN_BY
from fedkeel.papers.recipes.recipe import Column, Panel, PaperTable, Recipe, RecipeScale, Setup

_NINE = ("FedSAGD", "FedACG", "FedANAG", "SCAFFOLD", "FedDyn", "FedLNAG", "FedAvgM", "FedAdam", "FedCM")
_METHODS = {row: printed.METHODS[printed.OURS if row == "FedSAGD" else row] for row in _NINE}
_OTHERS = _NINE[1:]
_ASSUMED = (*printed.ASSUMED, *printed.ASSUMED_CIFAR)
_FOUR = ("FedSAGD", "FedACG", "FedANAG", "SCAFFOLD")
_FOUR_NOTE = f"{printed.SMALL_CIFAR10_NOTE}; of the nine methods {', '.join(_FOUR)}"

_SPLITS = {name: f"DirichletByClient({name})" for name in ("0.3", "0.6", "0.8")} | {"iid": "IID"}
_ONE_PER_CENT = {**printed.CIFAR10, "cohort": 2}

TABLE3 = Recipe(
    name="fedsagd/table3",
    title="Top accuracy on CIFAR-10 against heterogeneity, 1 % of the clients per round",
    setups={name: Setup({**_ONE_PER_CENT, "data.split": split}, _METHODS) for name, split in _SPLITS.items()},
    tables=(
        PaperTable(
            tuple(Column(name, name, "top") for name in _SPLITS),
            """
            FedSAGD  | 82.86 84.08 84.46 85.36
            FedACG   | 81.52 82.34 83.12 85.03
            FedANAG  | 82.37 83.11 84.27 85.13
            SCAFFOLD | 80.88 81.88 82.31 83.17
            FedDyn   | 78.45 81.95 83.01 83.10
            FedLNAG  | 79.05 80.53 80.93 81.99
            FedAvgM  | 81.34 82.15 83.12 84.70
            FedAdam  | 78.81 81.10 82.52 84.5
            FedCM    | 79.44 80.46 81.62 82.07
            """,
            title="Dirichlet",
        ),
    ),
    claims=(
        better("FedSAGD outperforms all baselines, IID or not", "FedSAGD"),
        SmallerDrop(
            "Heterogeneity (iid to Dirichlet 0.3) costs FedSAGD least", ("FedSAGD",), _OTHERS, "iid", "0.3"
        ),
        better("Global momentum (FedACG, FedANAG) is above FedLNAG", ("FedACG", "FedANAG"), "FedLNAG"),
    ),
    assumptions=(
        *_ASSUMED,
        "1 % of 200 clients: Table 4 has the same numbers at 1 % and those of Table 2 (200 clients) at 2 %.",
        "'Only a minimal adverse impact' is stated as 'less than on the others'; SCAFFOLD's own numbers "
        "contradict it (it loses 2.29 points, FedSAGD 2.50).",
    ),
    decided_by=DRIVEN_BY,
    seeds=5,
    cpu=RecipeScale(
        note=f"{_FOUR_NOTE}; Dirichlet 0.3 and iid",
        seeds=3,
        setups={"0.3": printed.SMALL_CIFAR10, "iid": printed.SMALL_CIFAR10},
        rows=_FOUR,
    ),
)

_RATES = {"1": 2, "2": 4, "5": 10, "10": 20}

TABLE4 = Recipe(
    name="fedsagd/table4",
    title="Top accuracy on CIFAR-10 against the participation rate, Dirichlet 0.3",
    setups={name: Setup({**printed.CIFAR10, "cohort": cohort}, _METHODS) for name, cohort in _RATES.items()},
    tables=(
        PaperTable(
            tuple(Column(name, name, "top") for name in _RATES),
            """
            FedSAGD  | 82.86 84.05 83.49 83.01
            FedACG   | 81.52 83.52 83.14 82.63
            FedANAG  | 82.37 83.51 83.04 82.50
            SCAFFOLD | 80.88 81.34 81.97 82.12
            FedDyn   | 78.45 80.14 80.45 82.46
            FedLNAG  | 79.05 79.60 80.10 79.54
            FedAvgM  | 81.34 81.86 82.71 82.08
            FedAdam  | 78.81 78.29 81.77 81.73
            FedCM    | 79.44 81.09 82.00 81.89
            """,
            title="PR(%)",
        ),
    ),
    claims=(
        better("FedSAGD outperforms all baselines at every participation rate", "FedSAGD"),
        SmallerDrop("Less participation (5 to 1 %) costs FedSAGD least", ("FedSAGD",), _OTHERS, "5", "1"),
        SmallerDrop("Less participation (10 to 1 %) costs FedSAGD least", ("FedSAGD",), _OTHERS, "10", "1"),
    ),
    assumptions=(
        *_ASSUMED,
        "200 clients: the column at 2 % repeats Table 2's tops, the one at 1 % the first of Table 3.",
        "'Only a minimal adverse impact' is stated as 'less than on the others'. From 10 to 1 % FedANAG's "
        "own numbers contradict it (it loses 0.13 points, FedSAGD 0.15); from 5 to 1 % it holds.",
    ),
    decided_by=DRIVEN_BY,
    seeds=5,
    cpu=RecipeScale(
        note=f"{_FOUR_NOTE}; participation of 1, 2 and 5 %",
        seeds=3,
        setups=dict.fromkeys(("1", "2", "5"), printed.SMALL_CIFAR10),
        rows=_FOUR,
    ),
)

_SENSITIVITY = {**printed.CIFAR10, "data.clients": 100, "cohort": 10, "rounds": 500}
_CHOSEN = {"beta": "0.9", "mu": "0.001", "lam": "0.01"}
_STABLE = 1.0  # points within which accuracies count as stable; the paper names no number


def _sensitivity(
    number: int,
    symbol: str,
    knob: str,
    numbers: dict[str, str],
    *,
    stable: tuple[str, ...],
    others: str,
    also: str = "",
) -> Recipe:
    """Return the table of one coefficient of FedSAGD, the two others as chosen."""
    rows = {f"{symbol} = {value}": value for value in numbers}
    chosen = {name: value for name, value in _CHOSEN.items() if name != knob}
    best = f"{symbol} = {_CHOSEN[knob]}"
    lines = {
        row: f"FedSAGD(beta={given['beta']}, lam={given['lam']}, mu={given['mu']})"
        for row, value in rows.items()
        for given in [{**chosen, knob: value}]
    }
    calm = tuple(f"{symbol} = {value}" for value in stable if value != _CHOSEN[knob])
    return Recipe(
        name=f"fedsagd/table{number}",
        title=f"Accuracy of FedSAGD on CIFAR-10 for different {symbol}, with {others}",
        setups={"cifar10": Setup(_SENSITIVITY, lines)},
        tables=(
            PaperTable(
                (Column("Acc.", "cifar10", "top"),),
                "\n".join(f"{row} | {numbers[value]}" for row, value in rows.items()),
            ),
        ),
        claims=(
            better(f"The accuracy peaks at {best}", best),
            Peaks(f"Both ends of the range of {symbol} are below some value inside", tuple(rows)),
            Similar(
                f"From {symbol} = {stable[0]} to {stable[-1]} the accuracy is high and stable (within "
                f"{_STABLE:g} point of the best)",
                calm,
                (best,),
                _STABLE,
                decided_by=(*DRIVEN_BY, *LEVEL),
            ),
        ),
        assumptions=(
            *_ASSUMED,
            "The split is Dirichlet 0.3 as everywhere else (A.5 says 'high heterogeneity'), the local work "
            "that of CIFAR-10 in A.3, and 'Acc.' the top accuracy; the paper prints none of these for this "
            "table.",
            f"'Stable' is taken as within {_STABLE:g} point of the best, since the paper names no number.",
            *((also,) if also else ()),
            "The printed table has the values side by side; here each is a row.",
        ),
        decided_by=DRIVEN_BY,
        seeds=5,
        cpu=RecipeScale(
            note="The CNN is as printed, with 40 rounds of 500 and two local epochs of five",
            seeds=3,
            settings={**printed.SMALL_CIFAR10, "rounds": 40},
        ),
        panels=(Panel(f"top accuracy against {symbol}", "cifar10", "Acc.", against="rows"),),
    )


TABLE8 = _sensitivity(
    8,
    "β",
    "beta",
    {
        "0.99": "80.27",
        "0.95": "81.14",
        "0.9": "81.34",
        "0.8": "81.02",
        "0.7": "80.81",
        "0.6": "80.63",
        "0.1": "78.57",
    },
    stable=("0.95", "0.9", "0.8", "0.7", "0.6"),
    others="μ = 0.001 and λ = 0.01",
)
_NAMED_TWICE = (
    "The last paragraph of A.5 calls μ β0 and says that it is best at 0.1 and stable from 0.1 to 0.0001; "
    "the paragraph on μ and the table have the best at 0.001. The range is claimed as printed, although 0.1 "
    "is 4.12 points below the best."
)
TABLE9 = _sensitivity(
    9,
    "μ",
    "mu",
    {
        "0.1": "77.22",
        "0.01": "80.09",
        "0.005": "80.93",
        "0.001": "81.34",
        "0.0005": "81.14",
        "0.0001": "80.08",
        "0.00001": "78.72",
    },
    stable=("0.1", "0.01", "0.005", "0.001", "0.0005", "0.0001"),
    others="β = 0.9 and λ = 0.01",
    also=_NAMED_TWICE,
)
TABLE10 = _sensitivity(
    10,
    "λ",
    "lam",
    {
        "1": "76.07",
        "0.1": "80.68",
        "0.05": "80.96",
        "0.01": "81.34",
        "0.005": "81.26",
        "0.001": "81.19",
        "0.0001": "81.06",
    },
    stable=("0.1", "0.05", "0.01", "0.005", "0.001"),
    others="β = 0.9 and μ = 0.001",
)
