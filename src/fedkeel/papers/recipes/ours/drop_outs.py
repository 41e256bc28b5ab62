"""Which methods bear clients that never answer: a round goes on with those that do."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import EXPOSURE, NOTHING, RELAXATION, BetterColumn, better
from fedkeel.papers.recipes.fedinit.settings import (
    ASSUMED_DATA,
    ASSUMED_RULE,
    ASSUMED_WORK,
    BASELINES,
    SMALL,
    SMALL_FEDDYN_NOTE,
    SMALL_NOTE,
    SMOOTHED,
    SPLITS,
    setup,
)
from fedkeel.papers.recipes.fedsagd.settings import METHODS
from fedkeel.papers.recipes.recipe import Column, Line, PaperTable, Recipe, RecipeScale

NONE, SOME = "all answer", "30 % drop out"
_ROWS: dict[str, str | Line] = {
    **{row: BASELINES[row] for row in ("FedAvg", "SCAFFOLD", "FedDyn", "FedCM")},
    "FedInit": "FedInit(beta=0.1)",
    **{row: METHODS[row] for row in ("FedAvgM", "FedACG")},
    "FedSAGD": METHODS["FedSAGD(ours)"],
}
_MEMORIES = ("SCAFFOLD", "FedDyn", "FedInit")  # clients remember something from their last turn

DROP_OUTS = Recipe(
    name="ours/drop-outs",
    title="Accuracy of eight methods where three in ten clients of a round never answer, CIFAR-10",
    setups={
        NONE: setup(SPLITS[0], lines=_ROWS),
        SOME: setup(SPLITS[0], lines=_ROWS, more={"faults": "Faults(drop=0.3)", "on_client_error": "skip"}),
    },
    tables=(PaperTable(tuple(Column(heading, heading, SMOOTHED) for heading in (NONE, SOME))),),
    claims=(
        BetterColumn("Every method loses less than one point", (SOME, NONE), by=-1.0),
        BetterColumn(
            "FedAvg loses less than one point", (SOME, NONE), ("FedAvg",), by=-1.0, decided_by=(NOTHING,)
        ),
        BetterColumn(
            "Methods whose clients remember lose less than one point", (SOME, NONE), _MEMORIES, by=-1.0
        ),
        BetterColumn(
            "Methods with a server's momentum lose less than one point",
            (SOME, NONE),
            ("FedAvgM", "FedACG", "FedSAGD"),
            by=-1.0,
            decided_by=(NOTHING,),
        ),
        better(
            "SCAFFOLD stays above FedAvg with drop-outs", "SCAFFOLD", "FedAvg", SOME, decided_by=(NOTHING,)
        ),
    ),
    assumptions=(
        "A client that drops out never answers; the mean is that of the others, and nothing stands in for "
        "it. Which ones drop is drawn for each round and client, and is the same for all methods.",
        *ASSUMED_DATA,
        *ASSUMED_WORK,
        *ASSUMED_RULE,
    ),
    decided_by=(RELAXATION, EXPOSURE),
    seeds=3,
    cpu=RecipeScale(
        note=f"{SMALL_NOTE.format(model='ResNet-18-GN', rounds=500)} {SMALL_FEDDYN_NOTE.format(times=5)}",
        seeds=3,
        settings=SMALL,
    ),
)
