"""FedInit's Table 9 and the poster's table of costs: what is sent, computed and kept, against FedAvg."""

from __future__ import annotations

from fedkeel.papers.recipes.claims import NOTHING, Between, Similar
from fedkeel.papers.recipes.fedinit.settings import FEDINIT, methods
from fedkeel.papers.recipes.recipe import Assumption, Column, PaperTable, Recipe, RecipeScale, Setup
from fedkeel.papers.recipes.studies import CountedCosts

FEDAVG = "FedAvg"
COMMUNICATION, GRADIENTS, STORAGE = "communication ratio", "gradient ratio", "storage ratio"
SPLIT = "10%-100 Dir-0.1"
_EXACT = 0.01  # counted ratios hold scalars too, as β or a round's number


def counted_setup() -> Setup:
    """Return the methods of the tables, counted in rounds of a small network, as `fedkeel costs` does."""
    return Setup({"data.name": "digits", "model.name": "mlp"}, methods(SPLIT), CountedCosts())


def exactly(text: str, rows: tuple[str, ...], column: str, ratio: float) -> Between:
    """Return the claim that a ratio is as printed."""
    return Between(text, rows, column, ratio - _EXACT, ratio + _EXACT)


def ratio_column(heading: str, quantity: str) -> Column:
    """Return a column of counted ratios."""
    return Column(heading, "counted", f"final of {quantity} (min)")


SEEDS = 2  # counts do not depend on the seed, but one alone has no interval
CPU = RecipeScale(note="as at the scale paper: ratios are counted, not timed", seeds=SEEDS)
SMOKE = RecipeScale(note="two rounds are counted instead of ten", seeds=SEEDS, settings={"study.rounds": 2})
ASSUMED_COUNTS = (
    "Counted at every scale in ten rounds of a small network on digits: a ratio depends on the model by its "
    "scalars alone (β, for one), a few in ten thousand.",
    "Communication is bytes down and up per client and round, each client receiving its own copy; with one "
    "broadcast for all FedCM would have 1.09× (see docs/diagnostics.md).",
    Assumption(
        "The methods' coefficients are those of the accuracy tables; none changes a count.",
        "data.name",
        "model.name",
        "Relaxed.*",
        "FedAdam.*",
        "FedSAM.*",
        "SCAFFOLD.*",
        "FedDyn.*",
        "FedCM.*",
        "FedAvg.*",
        "work.lr_decay",
        "sampling",
        "weighting",
        "work.clip",
    ),
)

TABLE_9 = Recipe(
    name="fedinit/table9",
    title="FedInit: communication and storage against FedAvg",
    setups={"counted": counted_setup()},
    tables=(
        PaperTable(
            (ratio_column(COMMUNICATION, "communication"), ratio_column(STORAGE, "storage")),
            """
            FedAvg   | 1× 1×
            FedAdam  | 1× 2×
            FedSAM   | 1× 2×
            SCAFFOLD | 2× 2×
            FedDyn   | 1× 2×
            FedCM    | 2× 2×
            FedInit  | 1× 1×
            """,
        ),
    ),
    claims=(
        Similar(
            "FedInit sends and stores no more than FedAvg",
            (FEDINIT,),
            (FEDAVG,),
            within=_EXACT,
            columns=(COMMUNICATION, STORAGE),
        ),
        exactly("SCAFFOLD sends twice as much as FedAvg", ("SCAFFOLD",), COMMUNICATION, 2),
        exactly("FedCM sends twice as much as FedAvg", ("FedCM",), COMMUNICATION, 2),
        exactly("SCAFFOLD and FedDyn store twice as much as FedAvg", ("SCAFFOLD", "FedDyn"), STORAGE, 2),
        exactly("FedAdam stores twice as much as FedAvg", ("FedAdam",), STORAGE, 2),
    ),
    assumptions=(
        *ASSUMED_COUNTS,
        "Storage is read as a model on every client and what it keeps beside it between rounds: so "
        "SCAFFOLD's and FedDyn's 2× are met. FedAvg's clients need no model between rounds, FedInit's must "
        "keep theirs: the table's convention hides it.",
        "FedAdam's 2× contradicts the poster's 1×: its two further vectors are the server's. FedSAM's and "
        "FedCM's 2× hold during the walk only.",
    ),
    decided_by=(NOTHING,),
    seeds=SEEDS,
    cpu=CPU,
    smoke=SMOKE,
)
