"""Rethinking's Figures 1 and 4: regularisation methods, and FedDyn→FedAvg with 100 and 10 clients."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import (
    CLIENTS,
    EXPOSURE,
    LEVEL,
    NOTHING,
    Between,
    Similar,
    SmallerDrop,
    better,
)
from fedkeel.papers.recipes.recipe import Column, Panel, PaperTable, Recipe, RecipeScale
from fedkeel.papers.recipes.rethinking.settings import (
    COMMON,
    CPU_DEVICE,
    CPU_DEVICE_FULL_NOTE,
    CPU_FULL,
    CPU_FULL_SILO_NOTE,
    CPU_SILO,
    DEVICE_ALPHA,
    FEDAVG,
    NOT_SAID_SPLIT,
    OTHERS,
    SAME_RUNS,
    SEEDS,
    SILO_ALPHA,
    TRAIN_LOSS,
    TWO_STAGES,
    device,
    feddyn,
    full,
    silo,
    switched,
    three,
)

_BEFORE, _AFTER = "mean:0.05:0.75", "mean:0.75:1"
_FEDDYN = feddyn(DEVICE_ALPHA)
_DIVERSITY = f"{_BEFORE} of diversity (min)"

_DIRECT = (TWO_STAGES, "SCAFFOLD→FedAvg")
_INDIRECT = ("FedNTD→FedAvg", "MOON→FedAvg")
_PRETRAINED = {
    "FedAvg": FEDAVG,
    TWO_STAGES: switched(_FEDDYN),
    "SCAFFOLD→FedAvg": switched("SCAFFOLD"),
    "FedNTD→FedAvg": switched("FedNTD"),
    "MOON→FedAvg": switched("MOON"),
}
FIGURE1 = Recipe(
    name="rethinking/figure1",
    title="Regularisation methods, then FedAvg: test accuracy, pseudo-gradient diversity, cosine similarity",
    setups={"partial participation": device(_PRETRAINED), "full participation": full(_PRETRAINED)},
    tables=(
        PaperTable(
            (
                Column("accuracy before the switch", "partial participation", _BEFORE),
                Column("final accuracy", "partial participation", "final"),
                Column("diversity before the switch", "full participation", _DIVERSITY),
                Column("diversity after the switch", "full participation", f"{_AFTER} of diversity (min)"),
                Column("cosine", "full participation", f"{_BEFORE} of cosine/earlier (min)"),
                Column(
                    "cosine with the last move", "full participation", f"{_BEFORE} of cosine/previous (min)"
                ),
                Column("early diversity", "full participation", "mean:0.05:0.25 of diversity (min)"),
                Column("early cosine", "full participation", "mean:0.05:0.25 of cosine/earlier (min)"),
            )
        ),
    ),
    claims=(
        better(
            "FedDyn and SCAFFOLD converge faster than FedAvg, FedNTD and MOON",
            _DIRECT,
            ("FedAvg", *_INDIRECT),
            "accuracy before the switch",
        ),
        Similar(
            "FedNTD and MOON converge as FedAvg does (within two points)",
            _INDIRECT,
            ("FedAvg",),
            2.0,
            ("accuracy before the switch",),
            decided_by=LEVEL,
        ),
        Similar(
            "FedNTD and MOON follow FedAvg: a cosine within 0.2 of its",
            _INDIRECT,
            ("FedAvg",),
            0.2,
            ("cosine",),
            decided_by=(NOTHING,),
        ),
        better(
            "FedAvg has the highest diversity and cosine in the early rounds",
            (*_DIRECT, *_INDIRECT),
            "FedAvg",
            "early diversity",
            "early cosine",
        ),
        Similar(
            "FedDyn and SCAFFOLD have a similar cosine (within 0.2)",
            (TWO_STAGES,),
            ("SCAFFOLD→FedAvg",),
            0.2,
            ("cosine",),
        ),
        better(
            "FedDyn and SCAFFOLD have a lower diversity and a lower cosine than FedAvg",
            _DIRECT,
            "FedAvg",
            "diversity before the switch",
            "cosine",
        ),
        Between(
            "FedDyn's and SCAFFOLD's moves are nearly orthogonal to their earlier ones",
            _DIRECT,
            "cosine",
            -0.3,
            0.3,
        ),
        better(
            "FedDyn has a lower diversity than SCAFFOLD and converges slightly faster",
            TWO_STAGES,
            "SCAFFOLD→FedAvg",
            "diversity before the switch",
            "accuracy before the switch",
        ),
        better(
            "Only FedDyn is a good initialisation: FedDyn→FedAvg ends highest, with the lowest diversity",
            TWO_STAGES,
            ("FedAvg", "SCAFFOLD→FedAvg", *_INDIRECT),
            "final accuracy",
            "diversity after the switch",
        ),
    ),
    assumptions=(
        NOT_SAID_SPLIT.format("Non-IID, which the text on client drift is about"),
        "Panel (c) compares the last round's move of a client with each of its earlier ones. Here each "
        "round's move is compared with all earlier ones, the mean being one point (cosine/earlier): its "
        "last point is the mean of panel (c). `cosine(each_round=True)` writes panel (c) itself as a list "
        "into a run's last row.",
        "How fast a method converges is taken as its mean accuracy between 5 and 75 % of the rounds; the "
        "early rounds are those from 5 to 25 %. “Similar” cosines are read as within 0.2.",
        OTHERS,
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=CPU_DEVICE_FULL_NOTE,
        seeds=3,
        setups={"partial participation": CPU_DEVICE, "full participation": CPU_FULL},
    ),
    panels=(
        Panel("(a) test accuracy", "partial participation", "accuracy"),
        Panel("(b) pseudo-gradient diversity", "full participation", "diversity"),
        Panel("(c) cosine with all earlier moves", "full participation", "cosine/earlier"),
        Panel("(c) cosine with the last move", "full participation", "cosine/previous"),
    ),
)

FIGURE4 = Recipe(
    name="rethinking/figure4",
    title="Test accuracy and train loss of FedAvg, FedDyn and FedDyn→FedAvg, 100 and 10 clients",
    setups={"100 clients": full(three(DEVICE_ALPHA)), "10 clients": silo(three(SILO_ALPHA))},
    tables=(
        PaperTable(
            (
                Column("mean accuracy, 100 clients", "100 clients", "mean:0:1"),
                Column("accuracy, 100 clients", "100 clients", "final"),
                Column("train loss, 100 clients", "100 clients", "final of losses/train (min)"),
                Column("train loss, 10 clients", "10 clients", "final of losses/train (min)"),
            )
        ),
        PaperTable(
            (Column("accuracy, 10 clients", "10 clients", "final"),),
            """
            FedAvg        | 54.21±0.14
            FedDyn        | 53.98±0.74
            FedDyn→FedAvg | 57.77±0.53
            """,
            SAME_RUNS,
        ),
    ),
    claims=(
        better(
            "100 clients: FedDyn converges faster and ends higher than FedAvg",
            "FedDyn",
            "FedAvg",
            "mean accuracy, 100 clients",
            "accuracy, 100 clients",
        ),
        SmallerDrop(
            "10 clients: FedDyn's advantage over FedAvg disappears",
            ("FedAvg",),
            ("FedDyn",),
            "accuracy, 100 clients",
            "accuracy, 10 clients",
            decided_by=(EXPOSURE, CLIENTS),
        ),
        better(
            "Regularisation throughout is less effective than for initialisation alone, with 100 and with "
            "10 clients",
            TWO_STAGES,
            ("FedAvg", "FedDyn"),
            "accuracy, 100 clients",
            "accuracy, 10 clients",
        ),
        better(
            "FedDyn→FedAvg has the lowest train loss at the end",
            TWO_STAGES,
            (),
            "train loss, 100 clients",
            "train loss, 10 clients",
        ),
    ),
    assumptions=(
        "100 clients train as in Table 5, 10 clients as in Table 6 (CIFAR-100); both take part in full.",
        TRAIN_LOSS,
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=RecipeScale(
        note=CPU_FULL_SILO_NOTE,
        seeds=3,
        setups={"100 clients": CPU_FULL, "10 clients": CPU_SILO},
    ),
    panels=(
        Panel("(a) test accuracy, 100 clients", "100 clients", "accuracy"),
        Panel("(a) train loss, 100 clients", "100 clients", "losses/train"),
        Panel("(b) test accuracy, 10 clients", "10 clients", "accuracy"),
        Panel("(b) train loss, 10 clients", "10 clients", "losses/train"),
    ),
)
