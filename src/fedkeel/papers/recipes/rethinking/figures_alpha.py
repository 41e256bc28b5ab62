"""Rethinking's Figures 9 and 10: how FedDyn depends on α."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import EXPOSURE, LEVEL, BetterColumn, Ordered, Similar, better
from fedkeel.papers.recipes.recipe import ALPHA_TIMES, Column, Panel, PaperTable, Recipe, RecipeScale
from fedkeel.papers.recipes.rethinking.settings import (
    COMMON,
    CPU_DEVICE,
    CPU_DEVICE_NOTE,
    CPU_FULL,
    CPU_FULL_NOTE,
    DRIFT_DIVERSITY,
    FEDAVG,
    MOVE_DIVERSITY,
    SAME_RUNS,
    SEEDS,
    TRAIN_LOSS,
    device,
    feddyn,
    full,
    switched,
)

_ALPHAS = ("α = 1.0", "α = 0.1", "α = 0.01")
_BY_ALPHA = {row: feddyn(float(row.rpartition(" ")[2])) for row in _ALPHAS}
FIGURE9 = Recipe(
    name="rethinking/figure9",
    title="Test accuracy and train loss of FedDyn→FedAvg according to α",
    setups={
        "partial participation": device(
            {"FedAvg": FEDAVG, **{row: switched(method) for row, method in _BY_ALPHA.items()}}, iid=True
        )
    },
    tables=(
        PaperTable(
            (Column("final accuracy", "partial participation", "final"),),
            """
            FedAvg  | 62.58±0.22
            α = 0.1 | 67.18±0.49
            """,
            SAME_RUNS,
        ),
        PaperTable(
            (
                Column("accuracy before the switch", "partial participation", "mean:0.5:0.75"),
                Column("accuracy at the switch", "partial participation", "mean:0.65:0.75"),
                Column("final train loss", "partial participation", "final of losses/train (min)"),
            )
        ),
    ),
    claims=(
        better("α = 1.0 is worse than FedAvg", "FedAvg", "α = 1.0", "final accuracy"),
        BetterColumn(
            "With α = 1.0 the switch to FedAvg brings no gain (less than one point)",
            ("accuracy at the switch", "final accuracy"),
            ("α = 1.0",),
            by=-1.0,
            decided_by=(EXPOSURE, *LEVEL),
        ),
        Similar(
            "With α = 0.1 and 0.01 FedDyn performs alike before the switch (within two points)",
            ("α = 0.1",),
            ("α = 0.01",),
            2.0,
            ("accuracy before the switch",),
            decided_by=(EXPOSURE, *LEVEL),
        ),
        better(
            "With α = 0.1 and 0.01 FedDyn→FedAvg ends above FedAvg", _ALPHAS[1:], "FedAvg", "final accuracy"
        ),
    ),
    assumptions=(
        "The caption says CIFAR-100, IID, 10 % participation: Table 5 but for α. The α are those that §A.6 "
        "names.",
        "§A.6 says that after fine-tuning α = 0.1 and 0.01 differ, not which is better: no claim.",
        TRAIN_LOSS,
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=f"{CPU_DEVICE_NOTE}; α = 1.0 five times as large, beyond which its steps overshoot",
        seeds=3,
        settings=CPU_DEVICE,
        lines={"α = 1.0": {ALPHA_TIMES: 5}},
    ),
    panels=(
        Panel("(a) test accuracy", "partial participation", "accuracy"),
        Panel("(b) train loss", "partial participation", "losses/train"),
    ),
)

FIGURE10 = Recipe(
    name="rethinking/figure10",
    title="Pseudo-gradient diversity and local drift diversity according to α",
    setups={
        "full participation": full({"FedAvg": FEDAVG, **_BY_ALPHA}),
        "local drift": full(_BY_ALPHA),
    },
    tables=(
        PaperTable(
            (
                Column("pseudo-gradient diversity", "full participation", MOVE_DIVERSITY),
                Column("local drift diversity", "local drift", DRIFT_DIVERSITY),
                Column("mean accuracy", "full participation", "mean:0:1"),
            )
        ),
    ),
    claims=(
        Ordered(
            "The smaller α, the higher the pseudo-gradient diversity and the local drift diversity",
            _ALPHAS,
            ("pseudo-gradient diversity", "local drift diversity"),
        ),
        better(
            "With α = 1.0 convergence is very slow: the lowest mean accuracy",
            ("FedAvg", "α = 0.1", "α = 0.01"),
            "α = 1.0",
            "mean accuracy",
        ),
    ),
    assumptions=(
        "The caption says CIFAR-100, Non-IID, full participation; the α are those that §A.6 names.",
        "FedDyn runs throughout; local drift ends where FedAvg begins.",
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=f"{CPU_FULL_NOTE}; α = 1.0 five times as large, beyond which its steps overshoot",
        seeds=3,
        settings=CPU_FULL,
        lines={"α = 1.0": {ALPHA_TIMES: 5}},
    ),
    panels=(
        Panel("(a) pseudo-gradient diversity", "full participation", "diversity"),
        Panel("(b) local drift diversity", "local drift", "diversity/h_i"),
    ),
)
