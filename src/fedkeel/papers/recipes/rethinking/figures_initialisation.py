"""Rethinking's Figures 7 and 8: other ways to begin, and the server's step from γ to θ."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import (
    CLIENTS,
    EXPOSURE,
    LEVEL,
    BetterColumn,
    Similar,
    SmallerDrop,
    better,
)
from fedkeel.papers.recipes.recipe import (
    Assumption,
    Column,
    Line,
    Panel,
    PaperTable,
    Recipe,
    RecipeScale,
    Setup,
)
from fedkeel.papers.recipes.rethinking.settings import (
    COMMON,
    CPU_DEVICE,
    CPU_DEVICE_NOTE,
    CPU_DEVICE_SILO_NOTE,
    CPU_SILO,
    DEVICE,
    DEVICE_ALPHA,
    FEDAVG,
    NOT_SAID_SPLIT,
    SAME_RUNS,
    SEEDS,
    SWITCH,
    TRAIN_LOSS,
    TWO_STAGES,
    device,
    feddyn,
    silo_line,
    switched,
)

_FEDDYN = feddyn(DEVICE_ALPHA)
_DROPPED = {"work.schedule": f"Drop(at={SWITCH})"}
_PUBLIC = "public data→FedAvg"
_FROM_PUBLIC = Line(FEDAVG, {"model.init": 'Pretrain("tiny-imagenet", epochs=5)'})
FIGURE7 = Recipe(
    name="rethinking/figure7",
    title="Initialisation by regularisation, a drop of the learning rate, pre-training on public data",
    setups={
        "Non-IID": device(
            {
                "FedAvg": FEDAVG,
                TWO_STAGES: switched(_FEDDYN),
                "FedAvg, rate dropped": Line(FEDAVG, _DROPPED),
                "FedDyn, rate dropped": Line(_FEDDYN, _DROPPED),
                _PUBLIC: _FROM_PUBLIC,
            }
        ),
        "IID": device({"FedAvg": FEDAVG, TWO_STAGES: switched(_FEDDYN), _PUBLIC: _FROM_PUBLIC}, iid=True),
    },
    tables=(
        PaperTable(
            (
                Column("final accuracy, IID", "IID", "final"),
                Column("final accuracy, Non-IID", "Non-IID", "final"),
            ),
            """
            FedAvg        | 62.58±0.22 53.51±0.28
            FedDyn→FedAvg | 67.18±0.49 56.48±0.24
            """,
            SAME_RUNS,
        ),
        PaperTable(
            (
                Column("accuracy, first half, IID", "IID", "mean:0:0.5"),
                Column("accuracy, first half, Non-IID", "Non-IID", "mean:0:0.5"),
                Column("final train loss, Non-IID", "Non-IID", "final of losses/train (min)"),
            )
        ),
    ),
    claims=(
        better(
            "(a) A drop of the learning rate cannot substitute for initialisation by regularisation",
            TWO_STAGES,
            ("FedAvg, rate dropped", "FedDyn, rate dropped"),
            "final accuracy, Non-IID",
        ),
        better(
            "(c) IID: pre-training on public data converges faster than FedDyn",
            _PUBLIC,
            TWO_STAGES,
            "accuracy, first half, IID",
        ),
        Similar(
            "(c) IID: FedDyn→FedAvg ends like pre-training on public data (within two points)",
            (TWO_STAGES,),
            (_PUBLIC,),
            2.0,
            ("final accuracy, IID",),
            decided_by=(EXPOSURE, *LEVEL),
        ),
        better(
            "(d) Non-IID: pre-training on public data ends above FedDyn→FedAvg",
            _PUBLIC,
            TWO_STAGES,
            "final accuracy, Non-IID",
        ),
        SmallerDrop(
            "(d) The gap between them is larger than with IID data",
            (_PUBLIC,),
            (TWO_STAGES,),
            "final accuracy, IID",
            "final accuracy, Non-IID",
        ),
    ),
    assumptions=(
        Assumption(
            "The public data is ImageNet-1k, down-sampled, for five epochs. There is no loader of it: "
            "Tiny-ImageNet, 200 of its classes at 64×64 pixels, stands in for it, with SGD of rate 0.1 and "
            "batch 50; the last layer starts anew.",
            "model.init",
        ),
        "Clients and participation are not said: 10 % of 100 clients, as in Table 5, so that FedAvg and "
        "FedDyn→FedAvg are the runs of Table 1.",
        NOT_SAID_SPLIT.format("(a) and (b) are taken to be Non-IID"),
        "Which method the rate is dropped for is not said: FedAvg and FedDyn, both by a tenth where "
        "FedDyn→FedAvg switches.",
        TRAIN_LOSS,
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=f"{CPU_DEVICE_NOTE}; the public data is CIFAR-100",
        seeds=3,
        settings=CPU_DEVICE,
        lines={_PUBLIC: {"model.init": 'Pretrain("cifar100", epochs=5)'}},
    ),
    panels=(
        Panel(
            "(a) test accuracy, rate dropped",
            "Non-IID",
            "accuracy",
            ("FedAvg", TWO_STAGES, "FedAvg, rate dropped", "FedDyn, rate dropped"),
        ),
        Panel(
            "(b) train loss, rate dropped",
            "Non-IID",
            "losses/train",
            ("FedAvg", TWO_STAGES, "FedAvg, rate dropped", "FedDyn, rate dropped"),
        ),
        Panel("(c) test accuracy, IID, public data", "IID", "accuracy"),
        Panel(
            "(d) test accuracy, Non-IID, public data", "Non-IID", "accuracy", ("FedAvg", TWO_STAGES, _PUBLIC)
        ),
    ),
)

_DEVICE_ROW, _SILO_ROW = "cross-device", "cross-silo"
FIGURE8 = Recipe(
    name="rethinking/figure8",
    title="Test accuracy: γ (aggregation) against θ = γ − h/α (global model)",
    setups={
        "FedDyn": Setup(
            DEVICE,
            {
                _DEVICE_ROW: _FEDDYN,
                _SILO_ROW: silo_line(DEVICE),
            },
        )
    },
    tables=(
        PaperTable(
            (Column("θ, final", "FedDyn", "final"),),
            """
            cross-device | 54.25±0.69
            cross-silo   | 53.98±0.74
            """,
            SAME_RUNS,
        ),
        PaperTable(
            (
                Column("θ, mean", "FedDyn", "mean:0.05:1"),
                Column("γ, mean", "FedDyn", "mean:0.05:1 of accuracy/gamma (max)"),
                Column("γ, final", "FedDyn", "final of accuracy/gamma (max)"),
            )
        ),
    ),
    claims=(
        BetterColumn("γ performs better than θ, in both settings", ("γ, mean", "θ, mean")),
        SmallerDrop(
            "The difference is more pronounced cross-silo than cross-device",
            (_DEVICE_ROW,),
            (_SILO_ROW,),
            "γ, mean",
            "θ, mean",
            decided_by=(EXPOSURE, CLIENTS),
        ),
    ),
    assumptions=(
        "Data set and split are not said: CIFAR-100, Non-IID, so that both are runs of Table 1.",
        "θ and γ are compared by their mean accuracy after the first 5 % of the rounds.",
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=CPU_DEVICE_SILO_NOTE,
        seeds=3,
        settings=CPU_DEVICE,
        lines={_SILO_ROW: CPU_SILO},
    ),
    panels=(
        Panel("θ, the global model", "FedDyn", "accuracy"),
        Panel("γ, the aggregation", "FedDyn", "accuracy/gamma"),
    ),
)
