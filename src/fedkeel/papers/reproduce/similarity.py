"""Similarity numbers: what a smaller experiment must share with the paper's to say something about it.

A scaled-down run is evidence only where that which drives the effect is kept. Each number is computed from
the settings alone, for every row of every setup, at the paper's scale and at ours. A claim names the numbers
that decide it (`claims.SIMILARITY`): where one of them is off by more than a factor of three, our runs say
nothing about that claim, and its verdict is "not comparable here".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedkeel.core.work import Work
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.expression import parse_faults
from fedkeel.methods import (
    Adaptive,
    Decayed,
    FedACG,
    FedDyn,
    FedProx,
    FedSAGD,
    FedSMOO,
    FedSpeed,
    Relaxed,
    Stages,
)
from fedkeel.methods.stages import as_stages
from fedkeel.papers.recipes.claims import (
    CLIENTS,
    DECAY,
    EXPOSURE,
    NOTHING,
    PROXIMAL,
    RELAXATION,
    SAMPLES,
    SIMILARITY,
    WALK,
    CellKey,
    Claim,
    Contrast,
)
from fedkeel.papers.recipes.recipe import PAPER, Column, Recipe, RecipeScale
from fedkeel.papers.recipes.studies import BoundedRun, CountedCosts
from fedkeel.papers.reproduce.estimate import DATA, MODELS
from fedkeel.papers.reproduce.plan import method_of, settings_of

FACTOR = 3.0  # a number that is further off than this is another experiment's
PER_CLIENT = "samples per client"  # printed, and decides nothing
LABELS = {
    WALK: "total walk Σ K·η",
    EXPOSURE: "FedDyn's exposure Σ p·K·α·η",
    RELAXATION: "relaxed start's momentum β·C/N",
    PROXIMAL: "proximal term coefficient·η·K",
    DECAY: "FedSAGD's decay μ·η·K",
    CLIENTS: "number of clients",
    PER_CLIENT: "samples seen per client",
    SAMPLES: "samples seen per parameter",
}

Numbers = dict[str, float]


class Compared(NamedTuple):
    """A similarity number of some rows of a setup: the paper's, and ours at a scale."""

    number: str
    setup: str
    rows: tuple[str, ...]
    paper: float
    ours: float

    @property
    def ratio(self) -> float:
        """Ours over the paper's; infinite where only one of the two is zero."""
        if self.paper == 0 or self.ours == 0:
            return 1.0 if self.paper == self.ours else math.inf
        return self.ours / self.paper

    @property
    def alike(self) -> bool:
        """Tell whether the two agree within a factor of three."""
        return 1 / FACTOR <= self.ratio <= FACTOR

    def __str__(self) -> str:
        where = f"{self.setup}, {', '.join(self.rows)}"
        return f"{LABELS[self.number]} is {self.ours:.3g}, in the paper {self.paper:.3g} ({where})"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**self._asdict(), "rows": list(self.rows), "alike": self.alike}


def similarity_numbers(table: Mapping[str, Any]) -> Numbers:
    """Return the similarity numbers of an experiment, from its table; nothing is loaded or trained.

    K are the local steps of a client with the mean number of samples, p the share of the clients in a round,
    and N counts those who answer.
    """
    experiment = Experiment.from_table(table)
    data, model = DATA.get(experiment.data.name), MODELS.get(experiment.model.name)
    if data is None or model is None:
        return {}
    work, rounds = experiment.work, experiment.rounds
    clients = _clients(experiment, data.train)
    each = data.train // clients
    clients -= experiment.data.held_out
    drawn = experiment.cohort if isinstance(experiment.cohort, int) else experiment.cohort * clients
    share = drawn / clients
    steps = work.count(each)
    rates = [_mean_rate(work, round, rounds, steps) for round in range(rounds)]
    batch = min(work.batch_size or each, each)
    seen = rounds * share * (steps * batch if work.epochs is None else work.epochs * each)
    numbers = {
        WALK: steps * sum(rates),
        CLIENTS: clients,
        PER_CLIENT: seen,
        SAMPLES: seen * clients / model.parameters,
    }
    answer = share * (1 - _drop(experiment.faults))
    stages, begin = as_stages(experiment.make_method()).fixed(rounds), 0
    for stage in stages.parts:
        end = stage.until if isinstance(stage.until, int) else rounds
        for part in _parts(stage.method):
            match part:
                case FedDyn(regularize=True) | FedSpeed() | FedSMOO():
                    exposure = share * steps * part.alpha * sum(rates[begin:end])
                    numbers[EXPOSURE] = numbers.get(EXPOSURE, 0.0) + exposure
                case Relaxed():
                    numbers[RELAXATION] = _beta(part, share) / answer
                case FedProx():
                    numbers[PROXIMAL] = part.mu * rates[0] * steps
                case FedACG():
                    numbers[PROXIMAL] = part.beta * rates[0] * steps
                case FedSAGD():
                    numbers[PROXIMAL] = part.lam * rates[0] * steps
                    numbers[DECAY] = part.mu * rates[0] * steps
        begin = end
    return numbers


def compare_numbers(recipe: Recipe, scale: RecipeScale, setup: str, row: str) -> Iterator[Compared]:
    """Yield the numbers of a row at a scale beside the paper's; a study without training has none."""
    if isinstance(recipe.setups[setup].study, CountedCosts | BoundedRun):
        return
    ours, paper = (_numbers(recipe, one, setup, row) for one in (scale, recipe.scale(PAPER)))
    for number in LABELS:
        if number in ours or number in paper:
            yield Compared(number, setup, (row,), paper.get(number, 0.0), ours.get(number, 0.0))


def compare_all(recipe: Recipe, scale: RecipeScale, rows: Iterable[str] | None = None) -> list[Compared]:
    """Return all numbers of a scale; rows of a setup that share both values share a line."""
    kept = set(recipe.rows if rows is None else rows)
    grouped: dict[tuple[str, str, float, float], list[str]] = {}
    for setup in recipe.setups if scale.setups is None else scale.setups:
        for row in recipe.setups[setup].lines:
            if row in kept and (scale.rows is None or row in scale.rows):
                for one in compare_numbers(recipe, scale, setup, row):
                    grouped.setdefault((one.number, setup, one.paper, one.ours), []).append(row)
    return [
        Compared(number, setup, tuple(rows), paper, ours)
        for (number, setup, paper, ours), rows in grouped.items()
    ]


def decisive(claim: Claim, recipe: Recipe) -> tuple[str, ...]:
    """Return the numbers that decide a claim: of those that are declared, the ones that its rows have."""
    declared = claim.decided_by or recipe.decided_by
    cells = {CellKey(row, one.heading) for one in recipe.columns for row in recipe.setups[one.setup].lines}
    contrasts = [contrast for some in claim.alternatives(cells) for contrast in some]
    known = {one.number for one in _numbers_of(contrasts, recipe, recipe.scale(PAPER), recipe.columns)}
    return tuple(number for number in declared if number in known)


def why_decisive(claim: Claim, recipe: Recipe) -> str:
    """Return which numbers decide a claim, and why, in words."""
    return "; ".join(SIMILARITY[number] for number in decisive(claim, recipe) or (NOTHING,))


def not_comparable(
    claim: Claim, recipe: Recipe, scale: RecipeScale, columns: Sequence[Column], contrasts: Sequence[Contrast]
) -> str | None:
    """Return why runs of a scale say nothing about a claim; None where they do.

    `contrasts` are those that the claim is made of here; the number that is furthest off is named.
    """
    wanted = claim.decided_by or recipe.decided_by
    numbers = _numbers_of(contrasts, recipe, scale, columns)
    off = [one for one in numbers if one.number in wanted and not one.alike]
    worst = max(off, key=lambda one: abs(math.log(one.ratio)) if one.ratio > 0 else math.inf, default=None)
    return _unprinted(contrasts, recipe, columns) if worst is None else str(worst)


def _numbers_of(
    contrasts: Iterable[Contrast], recipe: Recipe, scale: RecipeScale, columns: Iterable[Column]
) -> Iterator[Compared]:
    """Yield the numbers of all runs that contrasts are made of."""
    setups = {column.heading: column.setup for column in columns}
    cells = {cell for contrast in contrasts for cell in contrast.cells}
    for setup, row in sorted({(setups[cell.heading], cell.row) for cell in cells}):
        yield from compare_numbers(recipe, scale, setup, row)


def _unprinted(contrasts: Iterable[Contrast], recipe: Recipe, columns: Iterable[Column]) -> str | None:
    """Return the reason where a contrast has a row whose settings are not printed."""
    unprinted = {column.heading: recipe.setups[column.setup].unprinted for column in columns}
    for cell in (cell for contrast in contrasts for cell in contrast.cells):
        of_setup = unprinted[cell.heading]
        if of_setup is not None and cell.row in of_setup.rows:
            return of_setup.reason
    return None


def _numbers(recipe: Recipe, scale: RecipeScale, setup: str, row: str) -> Numbers:
    table, _ = settings_of(recipe, scale, setup, row)
    made = {**table, "method": method_of(recipe, scale, setup, row)}
    key = repr(made)
    if key not in _KNOWN:
        _KNOWN[key] = similarity_numbers(made)
    return _KNOWN[key]


_KNOWN: dict[str, Numbers] = {}  # by experiment: to read one takes a millisecond, and claims share them


def _clients(experiment: Experiment, train: int) -> int:
    clients = experiment.data.clients
    return clients if isinstance(clients, int) else max(1, min(100, train))


def _mean_rate(work: Work, round: int, rounds: int, steps: int) -> float:
    """Return the mean rate of a round's local steps."""
    rates = work.rates(round, rounds, steps)
    return work.rate(round, rounds) if rates is None else math.fsum(rates) / len(rates)


def _drop(faults: str | None) -> float:
    return 0.0 if faults is None else float(parse_faults(faults).drop)


def _parts(method: Any) -> Iterator[Any]:
    """Yield a method and all that it wraps."""
    assert not isinstance(method, Stages)
    while method is not None:
        yield method
        method = getattr(method, "inner", None)


def _beta(relaxed: Relaxed, share: float) -> float:
    match relaxed.beta:
        case Adaptive():
            return relaxed.beta.momentum * share
        case Decayed():
            return abs(relaxed.beta.beta)
        case beta:
            return abs(beta)
