"""Rethinking's Tables 1–4, typed as they are printed; Tables 5 and 6 are the settings."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import (
    EXPOSURE,
    LEVEL,
    NOTHING,
    BetterColumn,
    Ordered,
    Similar,
    better,
)
from fedkeel.papers.recipes.recipe import Column, Line, PaperTable, Recipe, RecipeScale, Setup
from fedkeel.papers.recipes.rethinking.settings import (
    COMMON,
    CPU_DEVICE,
    CPU_DEVICE_NOTE,
    CPU_FEATURES,
    CPU_FEATURES_NOTE,
    CPU_SILO_CIFAR10,
    CPU_TABLE1_NOTE,
    CROSS_DEVICE,
    CROSS_SILO,
    DATA_SETS,
    DEVICE_ALPHA,
    FEDAVG,
    IID,
    NON_IID,
    OTHERS,
    SEEDS,
    SILO_ALPHA,
    TWO_STAGES,
    device,
    features,
    feddyn,
    silo,
    switched,
    three,
    transposed,
)
from fedkeel.papers.recipes.studies import CountedCosts

_METHODS = "FedAvg | FedDyn | FedDyn→FedAvg"
DEVICE_PRINTED = """
    IID CIFAR10          | 86.35±0.12 88.97±0.15 89.11±0.16
    IID CIFAR100         | 62.58±0.22 65.71±0.20 67.18±0.49
    IID Tiny-ImageNet    | 52.39±0.38 56.04±0.15 57.85±0.25
    NonIID CIFAR10       | 73.36±0.38 81.83±0.39 81.43±0.44
    NonIID CIFAR100      | 53.51±0.28 54.25±0.69 56.48±0.24
    NonIID Tiny-ImageNet | 50.28±0.75 54.19±0.36 54.87±0.41
"""
SILO_PRINTED = """
    IID CIFAR10          | 86.63±0.06 88.25±0.17 89.91±0.13
    IID CIFAR100         | 66.30±0.14 66.03±0.27 68.99±0.23
    IID Tiny-ImageNet    | 57.30±0.09 55.96±0.21 59.51±0.22
    NonIID CIFAR10       | 62.37±0.50 75.39±0.35 78.29±0.24
    NonIID CIFAR100      | 54.21±0.14 53.98±0.74 57.77±0.53
    NonIID Tiny-ImageNet | 52.68±0.21 51.97±0.38 53.55±0.22
"""
_KINDS = [(split, data) for split in ("IID", "NonIID") for data in DATA_SETS]
_DEVICE_COLUMNS = tuple(f"Device {split} {data}" for split, data in _KINDS)
_SILO_COLUMNS = tuple(f"Silo {split} {data}" for split, data in _KINDS)


def _table1_setups() -> dict[str, Setup]:
    made = {}
    for split, data in _KINDS:
        drawn = IID if split == "IID" else NON_IID[data]
        shared = {**DATA_SETS[data], "data.split": drawn}
        for system, settings, alpha in (
            ("Device", CROSS_DEVICE, DEVICE_ALPHA),
            ("Silo", CROSS_SILO, SILO_ALPHA),
        ):
            made[f"{system} {split} {data}"] = Setup({**settings, **shared}, three(alpha))
        if data == "CIFAR100":  # with the probes of the figures, which show the same runs
            made[f"Device {split} {data}"] = device(three(DEVICE_ALPHA), iid=split == "IID")
            made[f"Silo {split} {data}"] = silo(three(SILO_ALPHA), iid=split == "IID")
    return {name: made[name] for name in (*_DEVICE_COLUMNS, *_SILO_COLUMNS)}


def _finals(names: tuple[str, ...]) -> tuple[Column, ...]:
    return tuple(Column(name, name, "final") for name in names)


TABLE1 = Recipe(
    name="rethinking/table1",
    title="Test accuracy of FedAvg, FedDyn, and FedDyn→FedAvg across various federated learning settings",
    setups=_table1_setups(),
    tables=(
        PaperTable(_finals(_DEVICE_COLUMNS), transposed(DEVICE_PRINTED, _METHODS), "Cross-Device"),
        PaperTable(_finals(_SILO_COLUMNS), transposed(SILO_PRINTED, _METHODS), "Cross-Silo"),
    ),
    claims=(
        better("FedDyn→FedAvg is above FedAvg in every setting", TWO_STAGES, "FedAvg"),
        better("FedDyn→FedAvg is above FedDyn in every setting", TWO_STAGES, "FedDyn"),
        better("Cross-Device: FedDyn is above FedAvg", "FedDyn", "FedAvg", *_DEVICE_COLUMNS),
        better(
            "Cross-Silo: FedDyn does not clearly outperform FedAvg (by less than one point)",
            "FedAvg",
            "FedDyn",
            *_SILO_COLUMNS,
            by=-1.0,
            decided_by=(EXPOSURE, *LEVEL),
        ),
    ),
    assumptions=(
        "The paper's own numbers contradict two claims: on CIFAR-10, cross-device and Non-IID, FedDyn "
        "(81.83) is above FedDyn→FedAvg (81.43); on CIFAR-10, cross-silo, FedDyn is above FedAvg by 1.6 and "
        "13.0 points.",
        "Tiny-ImageNet: §4.1 says ResNet-18, Tables 5 and 6 say ResNet-34, which is taken.",
        "The accuracy is that of the global model θ after the last round; which one is reported is not said.",
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=f"CIFAR-10 alone, in all four settings, with a multi-layer perceptron of 64 "
        f"units instead of VGG-11: {CPU_TABLE1_NOTE}",
        seeds=3,
        setups={
            "Device IID CIFAR10": {**CPU_DEVICE, "probes": ["losses"]},  # so that Table 2 shares its runs
            "Device NonIID CIFAR10": CPU_DEVICE,
            "Silo IID CIFAR10": CPU_SILO_CIFAR10,
            "Silo NonIID CIFAR10": CPU_SILO_CIFAR10,
        },
    ),
)

_SWITCH_ROUNDS = "0 (FedAvg) | 1000 (FedDyn) | 150 | 300 | 450 | 600 | 750 | 900"
TABLE2_PRINTED = """
    Final accuracy   | 62.58 65.71 63.87 64.98 65.94 66.99 67.13 67.71
    Rounds to 67%    | x     x     x     x     x     660   790   910
    Computation cost | 1     1.5   1.075 1.15  1.225 1.3   1.375 1.45
"""
_SWITCHED = {
    "0 (FedAvg)": FEDAVG,
    "1000 (FedDyn)": feddyn(DEVICE_ALPHA),
    **{str(at): switched(feddyn(DEVICE_ALPHA), share=at / 1000) for at in range(150, 1000, 150)},
}
_LATER = ("900", "750", "600", "450", "300", "150", "0 (FedAvg)")
_ENOUGH = ("600", "750", "900")

TABLE2 = Recipe(
    name="rethinking/table2",
    title="Ablation study on the switch point: final accuracy, rounds to 67 %, relative computation cost",
    setups={
        "runs": device(_SWITCHED, iid=True),
        "costs": Setup({"data.name": "digits", "model.name": "mlp"}, _SWITCHED, CountedCosts()),
    },
    tables=(
        PaperTable(
            (
                Column("Final accuracy", "runs", "final"),
                Column("Rounds to 67%", "runs", "rounds_to:0.67"),
                Column("Computation cost", "costs", "final of seconds_ratio (min)"),
            ),
            transposed(TABLE2_PRINTED, _SWITCH_ROUNDS),
        ),
    ),
    claims=(
        Ordered("The later the switch, the higher the final accuracy", _LATER, ("Final accuracy",)),
        better(
            "A switch after 600 rounds or later ends above FedDyn throughout",
            _ENOUGH,
            "1000 (FedDyn)",
            "Final accuracy",
        ),
        better(
            "The target is reached only where regularisation is kept for at least 600 rounds",
            _ENOUGH,
            ("0 (FedAvg)", "150", "300", "450", "1000 (FedDyn)"),
            "Rounds to 67%",
            decided_by=(EXPOSURE, *LEVEL),
        ),
        Ordered(
            "The later the switch, the more rounds to the target",
            _ENOUGH,
            ("Rounds to 67%",),
            decided_by=(EXPOSURE, *LEVEL),
        ),
        Ordered(
            "The later the switch, the higher the computation cost",
            (*reversed(_LATER), "1000 (FedDyn)"),
            ("Computation cost",),
            decided_by=(NOTHING,),
        ),
    ),
    assumptions=(
        "The setting is not named; FedAvg's 62.58 and FedDyn's 65.71 are Table 1's cross-device IID "
        "CIFAR-100. There FedDyn→FedAvg, switched at 75 %, has 67.18±0.49, here 67.13.",
        "A switch at 600 ends at 66.99, below the 67 % that it reached in round 660.",
        "The paper assumes that FedDyn costs 1.5 times FedAvg; here the seconds of both are counted, on "
        "digits and a small network (`fedkeel costs`).",
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=f"{CPU_DEVICE_NOTE}; switches at the same shares of the rounds; the target is 51 %, "
        "chosen after the runs as 67 % is in the paper, between FedDyn and the late switches (45 %, a guess "
        "before, was reached by all within 25 rounds)",
        seeds=3,
        setups={"runs": CPU_DEVICE, "costs": {}},
        measures={"Rounds to 67%": "rounds_to:0.51"},
    ),
)

TABLE3 = Recipe(
    name="rethinking/table3",
    title="Effect of varying γ_corr on the number of feature clusters",
    setups={
        "features": features(
            {
                "FedAvg": Line(FEDAVG, {"data.split": IID}),
                "FedDyn": Line(feddyn(SILO_ALPHA), {"data.split": IID}),
            }
        )
    },
    tables=(
        PaperTable(
            (
                Column("γ_corr = 0.3", "features", "final of features@0.3 (min)"),
                Column("γ_corr = 0.5", "features", "final of features@0.5 (min)"),
                Column("γ_corr = 0.7", "features", "final of features@0.7 (min)"),
            ),
            """
            FedAvg | 47 142 206
            FedDyn | 27 105 198
            """,
        ),
    ),
    claims=(
        BetterColumn(
            "The larger γ_corr, the more feature clusters", ("γ_corr = 0.3", "γ_corr = 0.5", "γ_corr = 0.7")
        ),
        better("FedDyn has fewer feature clusters than FedAvg at every γ_corr", "FedDyn", "FedAvg"),
    ),
    assumptions=(
        "The split is not said. IID, since FedAvg's 142 lies among the 140–150 features of Figure 2b and "
        "not among the 170–180 of Figure 2a; FedDyn's 105 then does not contradict the 80–90 of Figure 2c, "
        "which is Non-IID.",
        "The round is not said: the numbers are those after the last one.",
        "The number of test points is not said: 500.",
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(note=CPU_FEATURES_NOTE, seeds=3, settings=CPU_FEATURES),
)

_SECOND = "FedDyn (continuous) | FedAvg | FedNTD | Scaffold"
_FIRST = feddyn(DEVICE_ALPHA)
TABLE4 = Recipe(
    name="rethinking/table4",
    title="Different methods in the second stage of training, cross-device Non-IID CIFAR-100",
    setups={
        "runs": device(
            {
                "FedDyn (continuous)": _FIRST,
                "FedAvg": switched(_FIRST),
                "FedNTD": switched(_FIRST, "FedNTD"),
                "Scaffold": switched(_FIRST, "SCAFFOLD"),
            }
        )
    },
    tables=(
        PaperTable(
            (Column("Accuracy", "runs", "final"),), transposed("Accuracy | 54.25 56.48 54.06 56.31", _SECOND)
        ),
    ),
    claims=(
        better("FedNTD is not effective in the second stage: it is below FedAvg", "FedAvg", "FedNTD"),
        Similar(
            "Scaffold performs comparably to FedAvg (within one point)",
            ("Scaffold",),
            ("FedAvg",),
            1.0,
            decided_by=(EXPOSURE, *LEVEL),
        ),
        better("A switch to FedAvg ends above FedDyn throughout", "FedAvg", "FedDyn (continuous)"),
    ),
    assumptions=(
        "FedDyn is the first stage of every row; its 54.25 and FedAvg's 56.48 are those of Table 1.",
        OTHERS,
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(note=CPU_DEVICE_NOTE, seeds=3, settings=CPU_DEVICE),
)
TABLES = (TABLE1, TABLE2, TABLE3, TABLE4)
