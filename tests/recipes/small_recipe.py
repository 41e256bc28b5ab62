"""A recipe of seconds, for tests of the mechanism: two methods on digits, two setups."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import Peaks, SmallerDrop, better
from fedkeel.papers.recipes.recipe import (
    Column,
    Line,
    Panel,
    PaperTable,
    Recipe,
    RecipeScale,
    Setup,
)

BASE = {
    "data.clients": 4,
    "rounds": 3,
    "cohort": 2,
    "work.epochs": 1,
    "engine": "serial",
    "threads": 1,
}
METHODS = {"FedAvg": "FedAvg", "FedDyn(ours)": Line("FedDyn(alpha=0.1)", {"work.lr": 0.05})}

SMALL = Recipe(
    name="small/table1",
    title="Two methods on digits",
    setups={
        "iid": Setup({**BASE, "data.split": "IID"}, METHODS),
        "skewed": Setup({**BASE, "data.split": "DirichletByClass(0.5)"}, METHODS),
    },
    tables=(
        PaperTable(
            (
                Column("IID top", "iid", "top"),
                Column("IID 20 %", "iid", "rounds_to:0.2"),
                Column("IID 99.9 %", "iid", "rounds_to:0.999"),
                Column("skewed final", "skewed", "final"),
                Column("seconds", "skewed", "seconds"),
                Column("against FedAvg", "skewed", "seconds", "FedAvg"),
            ),
            """
            FedAvg       | 90.0±.5 10 2000+ 80.0 2.0 1×
            FedDyn(ours) | 95.5±.5  5 2000+ 85.0 3.0 1.5×
            """,
        ),
    ),
    panels=(Panel("accuracy", "iid", "accuracy"),),
    claims=(
        better("FedDyn has the higher accuracy", "FedDyn(ours)", "FedAvg", "IID top", "skewed final"),
        better("FedDyn needs fewer rounds", "FedDyn(ours)", "FedAvg", "IID 20 %"),
        better("FedDyn reaches 99.9 % first", "FedDyn(ours)", "FedAvg", "IID 99.9 %"),
        SmallerDrop(
            "FedDyn loses less on skewed clients",
            ("FedDyn(ours)",),
            ("FedAvg",),
            "IID top",
            "skewed final",
        ),
        Peaks("there is a best method in between", ("FedAvg", "FedDyn(ours)"), ("IID top",)),
    ),
    assumptions=("The paper does not exist.",),
    decided_by=("nothing",),
    seeds=3,
    cpu=RecipeScale(
        note="one setup and two seeds",
        seeds=2,
        setups={"iid": {"rounds": 2}},
        measures={"IID 99.9 %": "rounds_to:0.15"},
    ),
)
