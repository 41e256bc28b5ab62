"""FedInit's poster: its Tables 1 and 2, which repeat the paper's Tables 4 to 6, and its table of costs."""

from __future__ import annotations

from dataclasses import replace

from fedkeel.papers.recipes.claims import EXPOSURE, NOTHING, RELAXATION, Similar, better
from fedkeel.papers.recipes.fedinit.accuracy import TABLE_4, TABLE_5, TABLE_6
from fedkeel.papers.recipes.fedinit.costs import (
    ASSUMED_COUNTS,
    COMMUNICATION,
    CPU,
    FEDAVG,
    GRADIENTS,
    SEEDS,
    SMOKE,
    STORAGE,
    counted_setup,
    exactly,
    ratio_column,
)
from fedkeel.papers.recipes.fedinit.settings import FEDINIT, OTHERS, STATED
from fedkeel.papers.recipes.recipe import ALPHA_TIMES, Column, PaperTable, Reading, Recipe

_REPEATS_4_AND_5 = "The poster repeats Tables 4 and 5 of the paper, number by number; the runs are shared."
DATA_SETS = {"CIFAR-10": TABLE_4, "CIFAR-100": TABLE_5}


def _block(which: int) -> PaperTable:
    """Return a part of Table 1, upper (0) or lower (1): Table 4's columns with Table 5's beside them."""
    columns: list[Column] = []
    numbers: dict[str, list[str]] = {}
    for data, recipe in DATA_SETS.items():
        table = recipe.tables[which]
        columns += [
            Column(f"{data} {one.heading}", f"{data} {one.setup}", one.measure) for one in table.columns
        ]
        for row, printed in table.printed.items():
            numbers.setdefault(row, []).extend(number.text for number in printed.values())
    lines = "\n".join(f"{row} | {' '.join(texts)}" for row, texts in numbers.items())
    return PaperTable(tuple(columns), lines)


def _authors() -> Reading:
    """Return the two tables as the authors' code runs them."""
    readings = {data: recipe.authors for data, recipe in DATA_SETS.items()}
    assert all(readings.values())
    setups = {
        f"{data} {name}": setup
        for data, reading in readings.items()
        if reading is not None
        for name, setup in reading.setups.items()
    }
    first = readings["CIFAR-10"]
    assert first is not None
    general = (one for one in first.assumptions if not one.startswith("The text"))
    assumptions = (_REPEATS_4_AND_5, *general)
    return replace(first, setups=setups, assumptions=assumptions)


TABLE_1 = Recipe(
    name="poster/table1",
    title="FedInit's poster: test accuracy on CIFAR-10 and CIFAR-100, ResNet-18-GN and VGG-11",
    setups={
        f"{data} {name}": setup for data, recipe in DATA_SETS.items() for name, setup in recipe.setups.items()
    },
    tables=(_block(0), _block(1)),
    claims=(
        better("FedInit is better than all other methods in every column", FEDINIT, OTHERS),
        better("FedInit is better than FedAvg in every column", FEDINIT, FEDAVG),
    ),
    assumptions=(
        _REPEATS_4_AND_5,
        "The poster makes no claim about the table in words; the paper's are taken. Three columns "
        "contradict the first: CIFAR-10 VGG-11 5%-200 Dir-0.1 (FedDyn), CIFAR-100 ResNet-18-GN 10%-100 "
        "Dir-0.1 and VGG-11 10%-100 Dir-0.6 (SCAFFOLD).",
        *(one for one in TABLE_4.assumptions if not one.startswith("The text")),
    ),
    stated=STATED,
    decided_by=(RELAXATION, EXPOSURE),
    authors=_authors(),
    seeds=3,
    cpu=replace(
        TABLE_4.cpu,
        note=TABLE_4.cpu.note.replace("instead of 500", "instead of 500 and 800").replace(
            "is 5 times the paper's", "is 5 times the paper's (8 times on CIFAR-100)"
        ),
        setups={
            f"{data} {name}": {ALPHA_TIMES: recipe.cpu.settings[ALPHA_TIMES]}
            for data, recipe in DATA_SETS.items()
            for name in recipe.cpu.setups or ()
        },
    ),
)

_REPEATS_6 = "The poster repeats Table 6 of the paper, number by number; the runs and the claims are shared."
assert TABLE_6.authors is not None
TABLE_2 = TABLE_6.changed(
    name="poster/table2",
    title="FedInit's poster: relaxed initialisation (RI) on six methods, ResNet-18-GN on CIFAR-10",
    assumptions=(_REPEATS_6, *TABLE_6.assumptions),
    authors=replace(TABLE_6.authors, assumptions=(_REPEATS_6, *TABLE_6.authors.assumptions)),
)

COSTS = Recipe(
    name="poster/costs",
    title="FedInit's poster: communication, gradient calculations and storage against FedAvg",
    setups={"counted": counted_setup()},
    tables=(
        PaperTable(
            (
                ratio_column(COMMUNICATION, "communication"),
                ratio_column(GRADIENTS, "gradients_ratio"),
                ratio_column(STORAGE, "working"),
            ),
            """
            FedAvg   | 1× 1× 1×
            FedAdam  | 1× 1× 1×
            FedSAM   | 1× 2× 2×
            SCAFFOLD | 2× 1× 3×
            FedDyn   | 1× 1× 3×
            FedCM    | 2× 1× 3×
            FedInit  | 1× 1× 1×
            """,
        ),
    ),
    claims=(
        Similar(
            "RI needs no further communication, gradients or storage",
            (FEDINIT,),
            (FEDAVG,),
            within=0.01,
        ),
        exactly("FedSAM computes twice as many gradients as FedAvg", ("FedSAM",), GRADIENTS, 2),
        exactly("SCAFFOLD sends twice as much as FedAvg", ("SCAFFOLD",), COMMUNICATION, 2),
        exactly("FedCM sends twice as much as FedAvg", ("FedCM",), COMMUNICATION, 2),
        exactly("SCAFFOLD and FedDyn hold three times as much as FedAvg", ("SCAFFOLD", "FedDyn"), STORAGE, 3),
        exactly("FedCM holds three times as much as FedAvg", ("FedCM",), STORAGE, 3),
    ),
    assumptions=(
        *ASSUMED_COUNTS,
        "Storage is read as what a client holds during its walk: so the poster's 3× of SCAFFOLD and FedDyn "
        "can be met, where Table 9 of the paper prints 2×.",
        "FedCM's storage reads 2Cd and, beside it, 3×; the ratio is typed.",
    ),
    decided_by=(NOTHING,),
    seeds=SEEDS,
    cpu=CPU,
    smoke=SMOKE,
)

RECIPES: tuple[Recipe, ...] = (TABLE_1, TABLE_2, COSTS)
