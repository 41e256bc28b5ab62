"""Rethinking's Figures 2, 3 and 5: which features models share, by the interaction tensor."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import (
    EXPOSURE,
    LEVEL,
    NOTHING,
    BetterColumn,
    Between,
    Similar,
    better,
)
from fedkeel.papers.recipes.recipe import Column, Line, Panel, PaperTable, Recipe, RecipeScale
from fedkeel.papers.recipes.rethinking.settings import (
    COMMON,
    CPU_FEATURES,
    CPU_FEATURES_NOTE,
    FEDAVG,
    IID,
    OTHERS,
    SEEDS,
    SILO_ALPHA,
    TWO_STAGES,
    features,
    feddyn,
    switched,
)

_THROUGHOUT, _BEFORE, _AFTER = "mean:0.05:1", "mean:0.05:0.75", "mean:0.75:1"
_NON_IID_ROW, _IID_ROW, _FEDDYN_ROW = "FedAvg, Non-IID", "FedAvg, IID", "FedDyn, Non-IID"
_LINES: dict[str, str | Line] = {
    _NON_IID_ROW: FEDAVG,
    _IID_ROW: Line(FEDAVG, {"data.split": IID}),
    _FEDDYN_ROW: feddyn(SILO_ALPHA),
}
_MEASURED = (
    "γ_corr = 0.5 and the 90th percentile for γ_data (§A.2), K = 20 components, d = 64 (§3.3); the number "
    "of test points (500) and how often features are counted (every 10 rounds) are ours.",
    "FedDyn has the α = 0.01 of Table 6; its split is Non-IID, which Figure 2 does not say.",
)
_CPU = RecipeScale(note=CPU_FEATURES_NOTE, seeds=3, settings=CPU_FEATURES)

FIGURE2 = Recipe(
    name="rethinking/figure2",
    title="Feature clusters over training rounds: FedAvg Non-IID and IID, FedDyn",
    setups={"10 clients": features(_LINES)},
    tables=(
        PaperTable(
            (Column("feature clusters", "10 clients", f"{_THROUGHOUT} of features (min)"),),
            """
            FedAvg, Non-IID | 175±5
            FedAvg, IID     | 145±5
            FedDyn, Non-IID | 85±5
            """,
        ),
    ),
    claims=(
        better(
            "Non-IID data give more feature clusters than IID data",
            _IID_ROW,
            _NON_IID_ROW,
            decided_by=(NOTHING,),
        ),
        better("FedDyn reduces the number of feature clusters", _FEDDYN_ROW, (_NON_IID_ROW, _IID_ROW)),
        Between(
            "FedAvg, Non-IID: 170–180 features",
            (_NON_IID_ROW,),
            "feature clusters",
            170,
            180,
            decided_by=LEVEL,
        ),
        Between("FedAvg, IID: 140–150 features", (_IID_ROW,), "feature clusters", 140, 150, decided_by=LEVEL),
        Between(
            "FedDyn: 80–90 features",
            (_FEDDYN_ROW,),
            "feature clusters",
            80,
            90,
            decided_by=(EXPOSURE, *LEVEL),
        ),
    ),
    assumptions=(
        "The text prints ranges, 170–180, 140–150 and 80–90: they stand here as their middles ± 5.",
        "The panels show how often each feature occurs; what the text reads off them, the number of "
        "clusters, is what is measured here, as its mean after the first 5 % of the rounds.",
        *_MEASURED,
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=_CPU,
    panels=(
        Panel("(a) FedAvg, Non-IID: feature clusters", "10 clients", "features", (_NON_IID_ROW,)),
        Panel("(b) FedAvg, IID: feature clusters", "10 clients", "features", (_IID_ROW,)),
        Panel("(c) FedDyn: feature clusters", "10 clients", "features", (_FEDDYN_ROW,)),
    ),
)

_LOCAL, _NEXT = "shared by local and current", "shared by current and next"
FIGURE3 = Recipe(
    name="rethinking/figure3",
    title="Features that local models, and the next global model, share with the current global model",
    setups={"10 clients": features(_LINES)},
    tables=(
        PaperTable(
            (
                Column(_LOCAL, "10 clients", f"{_THROUGHOUT} of local_current (max)"),
                Column(_NEXT, "10 clients", f"{_THROUGHOUT} of current_next (max)"),
            )
        ),
    ),
    claims=(
        better(
            "IID local models keep more features of the global model than Non-IID ones",
            _IID_ROW,
            _NON_IID_ROW,
            _LOCAL,
            decided_by=(NOTHING,),
        ),
        better("FedDyn's local models keep more of them than FedAvg's", _FEDDYN_ROW, _NON_IID_ROW, _LOCAL),
        BetterColumn(
            "FedAvg's local models part from the current global model, yet the next one resembles it",
            (_NEXT, _LOCAL),
            (_NON_IID_ROW,),
            decided_by=(NOTHING,),
        ),
        better(
            "FedDyn's global model changes more from round to round than FedAvg's",
            _NON_IID_ROW,
            _FEDDYN_ROW,
            _NEXT,
        ),
        BetterColumn(
            "FedDyn's local models keep more features than its next global model does",
            (_LOCAL, _NEXT),
            (_FEDDYN_ROW,),
        ),
    ),
    assumptions=(*_MEASURED, *COMMON),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=_CPU,
    panels=(
        Panel("(a) features shared by local and current global models", "10 clients", "local_current"),
        Panel("(b) features shared by the current and the next global model", "10 clients", "current_next"),
    ),
)

_FIRST = feddyn(SILO_ALPHA)
_OTHER_ROWS = ("FedNTD→FedAvg", "SCAFFOLD→FedAvg", "MOON→FedAvg")
_KEPT, _RETAINED, _UNSTEPPED = "local models", "next model", "next model before the server's step"
FIGURE5 = Recipe(
    name="rethinking/figure5",
    title="Features shared with the current global model, before and after the server's step; clusters",
    setups={
        "10 clients": features(
            {
                "FedAvg": FEDAVG,
                TWO_STAGES: switched(_FIRST),
                "FedNTD→FedAvg": switched("FedNTD"),
                "SCAFFOLD→FedAvg": switched("SCAFFOLD"),
                "MOON→FedAvg": switched("MOON"),
            }
        )
    },
    tables=(
        PaperTable(
            (
                Column(_KEPT, "10 clients", f"{_BEFORE} of local_current (max)"),
                Column(_RETAINED, "10 clients", f"{_BEFORE} of current_next (max)"),
                Column(_UNSTEPPED, "10 clients", f"{_BEFORE} of current_mean (max)"),
                Column("next model after the switch", "10 clients", f"{_AFTER} of current_next (max)"),
                Column("clusters before the switch", "10 clients", f"{_BEFORE} of features (max)"),
                Column("clusters after the switch", "10 clients", f"{_AFTER} of features (max)"),
            )
        ),
    ),
    claims=(
        better("(a) FedNTD's local models keep most features", "FedNTD→FedAvg", (), _KEPT),
        better("(a) FedDyn's local models keep them well: more than FedAvg's", TWO_STAGES, "FedAvg", _KEPT),
        Similar(
            "(b) All methods but FedDyn resemble FedAvg (within 2 of 20 features)",
            _OTHER_ROWS,
            ("FedAvg",),
            2.0,
            (_RETAINED,),
            decided_by=(NOTHING,),
        ),
        better("(b) FedDyn's next model keeps the fewest", ("FedAvg", *_OTHER_ROWS), TWO_STAGES, _RETAINED),
        BetterColumn(
            "(c) It is the server's step by h that loses them", (_UNSTEPPED, _RETAINED), (TWO_STAGES,)
        ),
        BetterColumn(
            "After the switch to FedAvg the next model keeps more",
            ("next model after the switch", _RETAINED),
            (TWO_STAGES,),
        ),
        BetterColumn(
            "(d) After the switch the number of feature clusters grows",
            ("clusters after the switch", "clusters before the switch"),
            (TWO_STAGES,),
        ),
    ),
    assumptions=(
        "Clients and split are not said: 10 clients, Non-IID, as in Figures 2a and 3.",
        "Before the server's step is the mean of the local models, in every method.",
        OTHERS,
        _MEASURED[0],
        *COMMON,
    ),
    decided_by=(EXPOSURE,),
    seeds=SEEDS,
    cpu=_CPU,
    panels=(
        Panel("(a) features shared by local and current global models", "10 clients", "local_current"),
        Panel("(b) features shared by the current and the next global model", "10 clients", "current_next"),
        Panel("(c) the same before the server's step", "10 clients", "current_mean"),
        Panel("(d) feature clusters", "10 clients", "features"),
    ),
)
