"""Rethinking's Figures 11 to 13: FedDyn's training dynamics, and FedDyn without one of its parts."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import (
    CLIENTS,
    EXPOSURE,
    LEVEL,
    NOTHING,
    BetterColumn,
    Similar,
    SmallerDrop,
    better,
)
from fedkeel.papers.recipes.recipe import Column, Line, Panel, PaperTable, Recipe, RecipeScale, Setup
from fedkeel.papers.recipes.rethinking.settings import (
    COMMON,
    CPU_DEVICE,
    CPU_DEVICE_FULL_NOTE,
    CPU_DEVICE_NOTE,
    CPU_FULL,
    CPU_FULL_NOTE,
    CPU_SILO,
    DEVICE_ALPHA,
    DRIFT_DIVERSITY,
    FULL,
    MOVE_DIVERSITY,
    SAME_RUNS,
    SEEDS,
    TRAIN_LOSS,
    TWO_STAGES,
    device,
    feddyn,
    full,
    probes_of,
    silo_line,
    switched,
    three,
)

_FEDDYN = feddyn(DEVICE_ALPHA)
_NO_REG = feddyn(DEVICE_ALPHA, regularize=False)
_NO_H = feddyn(DEVICE_ALPHA, compensate=False)
_WITHOUT_REG, _WITHOUT_H = "FedDyn w/o Reg", "FedDyn w/o h"

_ABLATED = {
    **three(DEVICE_ALPHA),
    _WITHOUT_REG: _NO_REG,
    f"{_WITHOUT_REG}→FedAvg": switched(_NO_REG),
    _WITHOUT_H: _NO_H,
    f"{_WITHOUT_H}, α = 0.01": feddyn(0.01, compensate=False),
}
FIGURE11 = Recipe(
    name="rethinking/figure11",
    title="Training dynamics of FedDyn: local drift and pseudo-gradient diversity; accuracy without Reg or h",
    setups={
        "dynamics": Setup(
            FULL,
            {
                "100 clients": Line(_FEDDYN, {"probes": probes_of(_FEDDYN)}),
                "10 clients": silo_line(FULL),
            },
        ),
        "partial participation": device(_ABLATED, iid=True),
    },
    tables=(
        PaperTable(
            (
                Column("pseudo-gradient diversity", "dynamics", MOVE_DIVERSITY),
                Column("local drift diversity", "dynamics", DRIFT_DIVERSITY),
            ),
            title="(a), (b)",
        ),
        PaperTable(
            (
                Column("mean accuracy before the switch", "partial participation", "mean:0:0.75"),
                Column("final accuracy", "partial participation", "final"),
            ),
            title="(c)",
        ),
    ),
    claims=(
        BetterColumn(
            "Local drift is much more diverse than pseudo-gradients, with 100 and with 10 clients",
            ("pseudo-gradient diversity", "local drift diversity"),
            ("100 clients", "10 clients"),
        ),
        SmallerDrop(
            "With 10 clients local drift is extremely diverse: its lead is larger than with 100",
            ("100 clients",),
            ("10 clients",),
            "pseudo-gradient diversity",
            "local drift diversity",
            decided_by=(EXPOSURE, CLIENTS),
        ),
        better(
            "Without regularisation, the update by h alone still converges faster than FedAvg",
            _WITHOUT_REG,
            "FedAvg",
            "mean accuracy before the switch",
            decided_by=(NOTHING,),
        ),
        Similar(
            "FedDyn w/o Reg→FedAvg ends like FedDyn (within 1.5 points)",
            (f"{_WITHOUT_REG}→FedAvg",),
            ("FedDyn",),
            1.5,
            ("final accuracy",),
            decided_by=(EXPOSURE, *LEVEL),
        ),
        better(
            "Regularisation without h is effective only with a small α",
            f"{_WITHOUT_H}, α = 0.01",
            _WITHOUT_H,
            "final accuracy",
        ),
    ),
    assumptions=(
        "Panels (a) and (b) are not described: 100 clients as in Table 5 and 10 as in Table 6, CIFAR-100, "
        "Non-IID, all in every round, as the text and Figure 13 suggest.",
        "Panel (c) is not described either: CIFAR-100, IID, 10 % participation, as in Figure 12.",
        "What a small α is is not said: 0.01, beside the 0.1 of all others.",
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=f"{CPU_DEVICE_FULL_NOTE}; with 10 clients 10 local steps",
        seeds=3,
        setups={"dynamics": CPU_FULL, "partial participation": CPU_DEVICE},
        lines={"10 clients": CPU_SILO},
    ),
    panels=(
        Panel("(a), (b) pseudo-gradient diversity", "dynamics", "diversity"),
        Panel("(a), (b) local drift diversity", "dynamics", "diversity/h_i"),
        Panel("(c) test accuracy", "partial participation", "accuracy"),
    ),
)

_TO_FEDAVG, _TO_REG, _TO_H = TWO_STAGES, f"FedDyn→{_WITHOUT_REG}", f"FedDyn→{_WITHOUT_H}"
FIGURE12 = Recipe(
    name="rethinking/figure12",
    title="Test accuracy and train loss with fine-tuning with modified FedDyn",
    setups={
        "partial participation": device(
            {
                **three(DEVICE_ALPHA),
                _TO_REG: switched(_FEDDYN, _NO_REG),
                _TO_H: switched(_FEDDYN, _NO_H),
            },
            iid=True,
        )
    },
    tables=(
        PaperTable(
            (Column("final accuracy", "partial participation", "final"),),
            """
            FedAvg        | 62.58±0.22
            FedDyn        | 65.71±0.20
            FedDyn→FedAvg | 67.18±0.49
            """,
            SAME_RUNS,
        ),
        PaperTable((Column("final train loss", "partial participation", "final of losses/train (min)"),)),
    ),
    claims=(
        Similar(
            "FedDyn→FedDyn w/o Reg is not much different from FedDyn (within one point)",
            (_TO_REG,),
            ("FedDyn",),
            1.0,
            ("final accuracy",),
            decided_by=(EXPOSURE, *LEVEL),
        ),
        Similar(
            "FedDyn→FedDyn w/o h performs almost like FedDyn→FedAvg (within one point)",
            (_TO_H,),
            (_TO_FEDAVG,),
            1.0,
            ("final accuracy",),
            decided_by=(EXPOSURE, *LEVEL),
        ),
        better(
            "It is the end of updates by h that helps: both end above FedDyn and FedDyn→FedDyn w/o Reg",
            (_TO_FEDAVG, _TO_H),
            ("FedDyn", _TO_REG),
            "final accuracy",
            "final train loss",
        ),
    ),
    assumptions=(
        "The caption says CIFAR-100, IID, 10 % participation: Table 5.",
        "From FedDyn to one of its modifications h and the clients' h_i are kept; to FedAvg there is "
        "nothing to keep.",
        TRAIN_LOSS,
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(note=CPU_DEVICE_NOTE, seeds=3, settings=CPU_DEVICE),
    panels=(
        Panel("(a) test accuracy", "partial participation", "accuracy"),
        Panel("(b) train loss", "partial participation", "losses/train"),
    ),
)

_DIVERSITIES = ("pseudo-gradient diversity", "local drift diversity")
FIGURE13 = Recipe(
    name="rethinking/figure13",
    title="Pseudo-gradient diversity and local drift diversity of modified FedDyn",
    setups={"full participation": full({"FedDyn": _FEDDYN, _WITHOUT_REG: _NO_REG, _WITHOUT_H: _NO_H})},
    tables=(
        PaperTable(
            (
                Column("pseudo-gradient diversity", "full participation", MOVE_DIVERSITY),
                Column("local drift diversity", "full participation", DRIFT_DIVERSITY),
                Column("mean accuracy", "full participation", "mean:0:1"),
            )
        ),
    ),
    claims=(
        better("FedDyn w/o h has lower diversities than FedDyn", _WITHOUT_H, "FedDyn", *_DIVERSITIES),
        better("FedDyn w/o Reg has higher diversities than FedDyn", "FedDyn", _WITHOUT_REG, *_DIVERSITIES),
        better("FedDyn w/o h converges slowly: below FedDyn", "FedDyn", _WITHOUT_H, "mean accuracy"),
    ),
    assumptions=(
        "The caption says CIFAR-100, Non-IID, full participation: Table 5 with all 100 clients in every "
        "round.",
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(note=CPU_FULL_NOTE, seeds=3, settings=CPU_FULL),
    panels=(
        Panel("(a) pseudo-gradient diversity", "full participation", "diversity"),
        Panel("(b) local drift diversity", "full participation", "diversity/h_i"),
    ),
)
