"""FedInit's Tables 7 and 8: seconds per round, and rounds and seconds to a target accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from fedkeel.papers.recipes.claims import (
    EXPOSURE,
    LEVEL,
    NOTHING,
    RELAXATION,
    BetterColumn,
    Similar,
    better,
)
from fedkeel.papers.recipes.fedinit.settings import (
    ASSUMED,
    ASSUMED_BETA,
    ASSUMED_METHODS,
    AUTHORS_METHODS,
    FEDINIT,
    OTHERS,
    SMALL,
    SMALL_FEDDYN_NOTE,
    SMALL_NOTE,
    STATED,
    authors,
    setup,
)
from fedkeel.papers.recipes.recipe import (
    AUTHORS,
    Column,
    PaperTable,
    Recipe,
    RecipeScale,
    Settings,
    smoke_scale,
)

FEW, MANY = "10%-100", "5%-200"
FEDAVG = "FedAvg"
SPLIT = f"{FEW} Dir-0.1"  # "with the setup of 10%-100 Dir-0.1 splitting" (section 5.5)

# The CNN's gradients take most of a round, as ResNet-18-GN's do; the perceptron's would not.
_TIMED: Settings = MappingProxyType(
    {**SMALL, "model.name": "cnn", "rounds": 5, "work.epochs": 1, "eval_every": 5}
)


def _seconds(participation: str) -> tuple[Column, Column]:
    return (
        Column(f"{participation} s/round", participation, "seconds"),
        Column(f"{participation} ratio", participation, "seconds", relative_to=FEDAVG),
    )


_TEXT_7 = (
    "The paper names no machine (the authors' public code: a V100). Seconds are of this machine; only ratios "
    "can be compared, and runs beside each other disturb them: reproduce with --parallel 1.",
    "The split is not printed: Dir-0.1, as in Table 8.",
    "The text calls FedSAM the slowest; at 5%-200 the table has SCAFFOLD slower (24.49 against 22.18).",
)
TABLE_7 = Recipe(
    name="fedinit/table7",
    title="FedInit: wall-clock seconds per round, ResNet-18-GN on CIFAR-10",
    setups={part: setup(f"{part} Dir-0.1") for part in (FEW, MANY)},
    tables=(
        PaperTable(
            (*_seconds(FEW), *_seconds(MANY)),
            """
            FedAvg   | 19.38 1×    15.87 1×
            FedAdam  | 23.22 1.19× 17.50 1.10×
            FedSAM   | 30.23 1.56× 22.18 1.40×
            SCAFFOLD | 28.61 1.47× 24.49 1.54×
            FedDyn   | 23.84 1.23× 20.61 1.30×
            FedCM    | 22.63 1.17× 18.19 1.15×
            FedInit  | 20.41 1.05× 16.14 1.02×
            """,
        ),
    ),
    claims=(
        Similar(
            "FedInit takes about as long as FedAvg: within a tenth",
            (FEDINIT,),
            (FEDAVG,),
            within=0.1,
            columns=(f"{FEW} ratio", f"{MANY} ratio"),
        ),
        better(
            "FedSAM is the slowest",
            [row for row in (*OTHERS, FEDINIT) if row != "FedSAM"],
            "FedSAM",
            f"{FEW} ratio",
            f"{MANY} ratio",
        ),
        better(
            "SCAFFOLD, FedDyn and FedCM take longer than FedAvg",
            FEDAVG,
            ("SCAFFOLD", "FedDyn", "FedCM"),
            f"{FEW} ratio",
            f"{MANY} ratio",
        ),
    ),
    assumptions=(*_TEXT_7, *ASSUMED, *ASSUMED_BETA, *ASSUMED_METHODS),
    stated=STATED,
    decided_by=(NOTHING,),
    authors=authors(
        {part: setup(f"{part} Dir-0.1", reading=AUTHORS) for part in (FEW, MANY)},
        *_TEXT_7,
        *AUTHORS_METHODS,
    ),
    seeds=3,
    cpu=RecipeScale(
        note="the CNN of FedAvg and FedDyn (797,962 parameters) instead of ResNet-18-GN, five rounds "
        "instead of 500, one local epoch instead of five, no augmentation. Ratios depend on what a gradient "
        "costs beside the method's own arithmetic.",
        seeds=3,
        settings=_TIMED,
    ),
)

_BLOCKS = MappingProxyType({"upper": 0.70, "lower": 0.65})
_SMALL_TARGETS = MappingProxyType({"upper": 0.34, "lower": 0.30})
_SMOKE_TARGETS = MappingProxyType({"upper": 0.02, "lower": 0.01})  # four rounds do not get beyond chance


def _headings(block: str) -> tuple[str, str, str, str]:
    return f"{block} round", f"{block} round speed", f"{block} time", f"{block} time speed"


def _speeds(block: str, target: float) -> tuple[Column, ...]:
    rounds, seconds = f"rounds_to:{target:g}", f"seconds_to:{target:g}"
    headings = _headings(block)
    return (
        Column(headings[0], SPLIT, rounds),
        Column(headings[1], SPLIT, rounds, relative_to=FEDAVG, inverse=True),
        Column(headings[2], SPLIT, seconds),
        Column(headings[3], SPLIT, seconds, relative_to=FEDAVG, inverse=True),
    )


def _measures(targets: Mapping[str, float]) -> dict[str, str]:
    """Return the rules of a scale with other targets, by heading, where the paper's are out of reach."""
    made: dict[str, str] = {}
    for block, target in targets.items():
        kinds = ("rounds_to", "rounds_to", "seconds_to", "seconds_to")
        made |= {heading: f"{kind}:{target:g}" for heading, kind in zip(_headings(block), kinds, strict=True)}
    return made


_TEXT_8 = (
    "Targets are not printed, nor what the two parts are. Seconds per round are the same in both (19.38 "
    "of FedAvg, Table 7), so both are of 10%-100 with ResNet-18-GN, and the text names the one split "
    "Dir-0.1: two targets.",
    "Upper target 70 %: FedAdam reaches it after 489 of 500 rounds and ends at 70.44 (Table 4). Lower "
    "target 65 %: the next round number below; FedAvg takes half as long for it.",
    "The text calls FedInit better and SOTA; to the lower target the table has FedCM and FedDyn in fewer "
    "rounds, and FedCM in less time.",
    "The target counts as reached at the first evaluation at or above it, without smoothing: the paper "
    "does not say.",
    "That SCAFFOLD and FedDyn are efficient in rounds and must spend more time on the total training is read "
    "as a smaller speed-up in time than in rounds.",
)
_TO_A_TARGET = (RELAXATION, EXPOSURE, *LEVEL)
_TABLE_8 = Recipe(
    name="fedinit/table8",
    title="FedInit: rounds and seconds to a target accuracy, ResNet-18-GN on CIFAR-10, 10%-100 Dir-0.1",
    setups={SPLIT: setup(SPLIT)},
    tables=(
        PaperTable(
            _speeds("upper", _BLOCKS["upper"]),
            """
            FedAvg   | 371 1×    7189  1×
            FedAdam  | 489 0.76× 11354 0.63×
            FedSAM   | 377 0.98× 11396 0.63×
            SCAFFOLD | 248 1.50× 7095  1.01×
            FedDyn   | 192 1.93× 4577  1.57×
            FedCM    | 183 2.02× 4141  1.73×
            FedInit  | 172 2.15× 3510  2.04×
            """,
            "upper part (target taken: 70 %)",
        ),
        PaperTable(
            _speeds("lower", _BLOCKS["lower"]),
            """
            FedAvg   | 191 1×    3701 1×
            FedAdam  | 256 0.74× 5944 0.62×
            FedSAM   | 204 0.93× 6166 0.60×
            SCAFFOLD | 211 0.90× 6036 0.61×
            FedDyn   | 122 1.56× 2908 1.27×
            FedCM    | 95  2.01× 2149 1.72×
            FedInit  | 132 1.44× 2694 1.37×
            """,
            "lower part (target taken: 65 %)",
        ),
    ),
    claims=(
        better(
            "FedInit reaches both targets in fewer rounds than FedAvg",
            FEDINIT,
            FEDAVG,
            "upper round",
            "lower round",
            decided_by=_TO_A_TARGET,
        ),
        better(
            "FedInit reaches both targets in less time than FedAvg",
            FEDINIT,
            FEDAVG,
            "upper time",
            "lower time",
            decided_by=_TO_A_TARGET,
        ),
        better(
            "FedInit is the fastest to the upper target, in time",
            FEDINIT,
            OTHERS,
            "upper time",
            decided_by=_TO_A_TARGET,
        ),
        better(
            "FedInit is the fastest to the lower target, in time",
            FEDINIT,
            OTHERS,
            "lower time",
            decided_by=_TO_A_TARGET,
        ),
        better(
            "SCAFFOLD and FedDyn reach the upper target in fewer rounds than FedAvg",
            ("SCAFFOLD", "FedDyn"),
            FEDAVG,
            "upper round",
            decided_by=_TO_A_TARGET,
        ),
        BetterColumn(
            "SCAFFOLD and FedDyn are efficient in rounds, less so in time",
            ("upper round speed", "upper time speed"),
            ("SCAFFOLD", "FedDyn"),
            decided_by=(NOTHING,),
        ),
    ),
    assumptions=(*_TEXT_8, *ASSUMED, *ASSUMED_BETA, *ASSUMED_METHODS),
    stated=STATED,
    decided_by=(RELAXATION, EXPOSURE),
    authors=authors({SPLIT: setup(SPLIT, reading=AUTHORS)}, *_TEXT_8, *AUTHORS_METHODS),
    seeds=3,
    cpu=RecipeScale(
        note="targets of 34 % and 30 % instead of 70 % and 65 %, with "
        + f"{SMALL_NOTE.format(model='ResNet-18-GN', rounds=500)} {SMALL_FEDDYN_NOTE.format(times=5)}",
        seeds=3,
        settings=SMALL,
        measures=_measures(_SMALL_TARGETS),
    ),
)

_SMOKE = smoke_scale(_TABLE_8)
TABLE_8 = _TABLE_8.changed(
    smoke=replace(
        _SMOKE, note=f"targets of 2 % and 1 %, with {_SMOKE.note}", measures=_measures(_SMOKE_TARGETS)
    )
)
