"""Rethinking's Figure 6: SCAFFOLD and FedDyn as initialisation for FedAvg."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import EXPOSURE, NOTHING, BetterColumn, better
from fedkeel.papers.recipes.recipe import Column, Panel, PaperTable, Recipe, RecipeScale
from fedkeel.papers.recipes.rethinking.settings import (
    COMMON,
    CPU_DEVICE,
    CPU_DEVICE_FULL_NOTE,
    CPU_FULL,
    DEVICE_ALPHA,
    NOT_SAID_SPLIT,
    OTHERS,
    SEEDS,
    TRAIN_LOSS,
    TWO_STAGES,
    device,
    feddyn,
    full,
    switched,
    three,
)

_PARTIAL, _FULL = "partial participation", "full participation"
_H, _C = "control variates of FedDyn", "control variates of SCAFFOLD"
_SCAFFOLD = {"SCAFFOLD": "SCAFFOLD", "SCAFFOLD→FedAvg": switched("SCAFFOLD")}
FIGURE6 = Recipe(
    name="rethinking/figure6",
    title="SCAFFOLD and FedDyn as initialisation: accuracy, train loss, and two diversities",
    setups={
        _PARTIAL: device({**three(DEVICE_ALPHA), **_SCAFFOLD}),
        _FULL: full({**three(DEVICE_ALPHA), **_SCAFFOLD}),
        _H: full({"FedDyn": feddyn(DEVICE_ALPHA)}),
        _C: full({"SCAFFOLD": "SCAFFOLD"}),
    },
    tables=(
        PaperTable(
            (
                Column("final accuracy", _PARTIAL, "final"),
                Column(
                    "train loss before the switch",
                    _PARTIAL,
                    "mean:0.4:0.75 of losses/train (min)",
                ),
                Column("train loss after the switch", _PARTIAL, "mean:0.75:1 of losses/train (min)"),
                Column("diversity", _FULL, "mean:0.05:0.75 of diversity (min)"),
                Column(
                    "diversity of h_i, early",
                    _H,
                    "mean:0.05:0.25 of diversity/h_i (min)",
                ),
                Column(
                    "diversity of h_i, late",
                    _H,
                    "mean:0.75:1 of diversity/h_i (min)",
                ),
                Column(
                    "diversity of c_i, early",
                    _C,
                    "mean:0.05:0.25 of diversity/c_i (min)",
                ),
                Column(
                    "diversity of c_i, late",
                    _C,
                    "mean:0.75:1 of diversity/c_i (min)",
                ),
            )
        ),
    ),
    claims=(
        better(
            "SCAFFOLD is no good initialisation: SCAFFOLD→FedAvg ends below SCAFFOLD",
            "SCAFFOLD",
            "SCAFFOLD→FedAvg",
            "final accuracy",
            decided_by=(NOTHING,),
        ),
        better("FedDyn is one: FedDyn→FedAvg ends above FedDyn", TWO_STAGES, "FedDyn", "final accuracy"),
        *(
            better(
                f"The switch to FedAvg makes the train loss drop: {method}→FedAvg's is below {method}'s",
                f"{method}→FedAvg",
                method,
                "train loss after the switch",
                decided_by=(EXPOSURE,) if method == "FedDyn" else (NOTHING,),
            )
            for method in ("FedDyn", "SCAFFOLD")
        ),
        better("Both have a lower diversity than FedAvg", ("FedDyn", "SCAFFOLD"), "FedAvg", "diversity"),
        better("FedDyn has a much lower diversity than SCAFFOLD", "FedDyn", "SCAFFOLD", "diversity"),
        BetterColumn(
            "The diversity of FedDyn's control variates grows",
            ("diversity of h_i, early", "diversity of h_i, late"),
            ("FedDyn",),
        ),
        BetterColumn(
            "The diversity of SCAFFOLD's control variates does not grow noticeably (by less than 1)",
            ("diversity of c_i, late", "diversity of c_i, early"),
            ("SCAFFOLD",),
            by=-1.0,
            decided_by=(NOTHING,),
        ),
    ),
    assumptions=(
        NOT_SAID_SPLIT.format("Non-IID"),
        "Participation is not said: 10 % for accuracy and train loss, full for diversities, as in §3.2.",
        "The server's control variate is the mean of the clients', so the diversity of control variates is "
        "that of all clients', as in (1).",
        TRAIN_LOSS,
        OTHERS,
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=CPU_DEVICE_FULL_NOTE,
        seeds=3,
        setups={
            _PARTIAL: CPU_DEVICE,
            _FULL: CPU_FULL,
            _H: CPU_FULL,
            _C: CPU_FULL,
        },
    ),
    panels=(
        Panel("(a) test accuracy", _PARTIAL, "accuracy"),
        Panel("(b) train loss", _PARTIAL, "losses/train"),
        Panel("(c) pseudo-gradient diversity", _FULL, "diversity"),
        Panel("(d) diversity of FedDyn's control variates", _H, "diversity/h_i"),
        Panel("(d) diversity of SCAFFOLD's", _C, "diversity/c_i"),
    ),
)
