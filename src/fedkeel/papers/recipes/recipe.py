"""What a recipe is: the runs behind one table or figure of a paper, its numbers, and what it claims.

A recipe is a value. Nothing here trains, and nothing imports PyTorch: `fedkeel.papers.reproduce` turns a
recipe at one of its scales into runs, reads the numbers and judges the claims.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal

from fedkeel.common.errors import ConfigError
from fedkeel.papers.recipes.claims import Claim
from fedkeel.papers.recipes.printed import Printed, read_rows
from fedkeel.papers.recipes.studies import RecipeStudy

Settings = Mapping[str, Any]  # dotted keys of an experiment, as {"work.lr": 0.1, "rounds": 500}

PAPER, CPU, SMOKE = "paper", "cpu", "smoke"
PRINTED: Final = "printed"  # how a recipe is read: by the text alone
AUTHORS: Final = "authors"  # … or as public code runs it
ALPHA_TIMES = "method.alpha_times"  # a scale's factor for FedDyn's α, so that its exposure is kept


class Assumption(str):
    """A choice that the paper does not print, in words, and the settings that it is about.

    `covers` has keys of an experiment (`work.clip`) and arguments of methods (`FedDyn.alpha`, `FedNTD.*`): a
    test asks that every setting of a recipe is either printed or covered. `choice` is a value of ours on
    which verdicts may hang, in a few words: docs/findings.md names it beside each of them.
    """

    covers: tuple[str, ...]
    choice: str

    def __new__(cls, text: str, *covers: str, choice: str = "") -> Assumption:
        """Make one of a text and the settings that it covers."""
        made = super().__new__(cls, text)
        made.covers = covers
        made.choice = choice
        return made


@dataclass(frozen=True)
class Line:
    """A method of a setup, with the settings that are its own (FedInit gives FedDyn another decay)."""

    method: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Unprinted:
    """Settings of some rows that the paper does not print, and on which every claim about them hangs."""

    rows: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Setup:
    """Runs that share data, model and work: what they share, and the method of each row of the table.

    A `study` takes the place of plain training where the paper measures something that needs runs of its own.
    A claim about rows of `unprinted` is not judged.
    """

    settings: Settings
    lines: Mapping[str, str | Line]
    study: RecipeStudy | None = None
    unprinted: Unprinted | None = None

    def line(self, row: str) -> Line:
        """Return the method of a row with its own settings."""
        found = self.lines[row]
        return Line(found) if isinstance(found, str) else found


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, the setup it is read from and the rule that makes a number of a run.

    `measure` is a rule of `report.measures` (`final`, `smoothed:50`, `mean:0.05:1 of diversity (min)`), what
    it took to reach a target (`rounds_to:0.75`, `gradients_to:…`, `bytes_to:…`, `seconds_to:…`), or
    `seconds` per round. `relative_to` divides by the number of that row; `inverse` the other way round, as in
    a speed-up.
    """

    heading: str
    setup: str
    measure: str
    relative_to: str | None = None
    inverse: bool = False


@dataclass(frozen=True)
class PaperTable:
    """Columns, and the numbers as the paper prints them: lines of `row | number number …`; "" for figures."""

    columns: tuple[Column, ...]
    numbers: str = ""
    title: str = ""

    @cached_property
    def printed(self) -> dict[str, dict[str, Printed]]:
        """The printed numbers by row and heading."""
        return read_rows(self.numbers, [column.heading for column in self.columns])


@dataclass(frozen=True)
class Panel:
    """A panel of a figure: a column of the histories of a setup's rows, against rounds (or local steps).

    With `against_rows` it is the number in `column`, a heading of the recipe, against the row's own number
    (β, K, α), one point for each row.
    """

    title: str
    setup: str
    column: str
    rows: tuple[str, ...] | None = None
    against: Literal["rounds", "rows"] = "rounds"
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class RecipeScale:
    """How much of the paper's experiment is run, and what is changed: `note` says it plainly.

    `settings` change every run; `setups` names those that are run, each with changes of its own (None: all);
    `lines` changes what is a row's own; `rows` names those that are run (None: all). `measures` replaces
    rules, by heading, where a target of the paper is out of reach. Keys such as `study.every` change the
    study; `method.alpha_times` multiplies FedDyn's α, so that a client's memory is renewed as often as in the
    paper although it takes fewer steps.
    """

    note: str
    seeds: int
    settings: Settings = field(default_factory=dict)
    setups: Mapping[str, Settings] | None = None
    lines: Mapping[str, Settings] = field(default_factory=dict)
    rows: tuple[str, ...] | None = None
    measures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The experiment as public code runs it: its setups, and all that is assumed beside the paper's text.

    `source` says whose code it is. `measures` replaces rules by heading, and `panels` the panels, where that
    code measures something else than the text says.
    """

    source: str
    setups: Mapping[str, Setup]
    assumptions: tuple[str, ...]
    measures: Mapping[str, str] = field(default_factory=dict)
    panels: tuple[Panel, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One table or figure: `name` is paper/tableN or paper/figureN.

    `seeds` is how often the paper repeats a run; `scales` has `cpu` and, where the general one does not fit,
    `smoke`. `assumptions` has a line for each choice made where the paper is silent or contradicts itself,
    without those about methods that no row runs, and `stated` the settings that it prints. `authors` is the
    second reading, where there is public code; `decided_by` names the similarity numbers that decide its
    claims (`claims.SIMILARITY`).
    """

    name: str
    title: str
    setups: Mapping[str, Setup]
    tables: tuple[PaperTable, ...]
    claims: tuple[Claim, ...]
    assumptions: tuple[str, ...]
    seeds: int
    cpu: RecipeScale
    smoke: RecipeScale | None = None
    panels: tuple[Panel, ...] = ()
    stated: tuple[str, ...] = ()
    decided_by: tuple[str, ...] = ()
    authors: Reading | None = None
    reading: str = PRINTED

    def __post_init__(self) -> None:
        own = tuple(one for one in self.assumptions if self._concerns(one))
        object.__setattr__(self, "assumptions", own)
        headings = [column.heading for column in self.columns]
        if len(set(headings)) < len(headings):
            raise ValueError(f"{self.name}: two columns have the same heading")
        for table in self.tables:
            for column in table.columns:
                if column.setup not in self.setups:
                    raise ValueError(f"{self.name}: {column.heading}: there is no setup {column.setup!r}")
                extra = set(table.printed) - set(self.setups[column.setup].lines)
                if extra & {row for row, numbers in table.printed.items() if column.heading in numbers}:
                    raise ValueError(f"{self.name}: {sorted(extra)}: printed, but no line of {column.setup}")
        for claim in self.claims:
            claim.check(self.name, set(headings), set(self.rows), self.decided_by)
        for panel in self.panels:
            known = headings if panel.against == "rows" else [panel.column]
            if panel.setup not in self.setups or panel.column not in known:
                raise ValueError(f"{self.name}: panel {panel.title}: no such setup or column")

    def _concerns(self, assumption: str) -> bool:
        """Tell whether an assumption is about the rows; one about methods alone must name one of theirs."""
        covers = getattr(assumption, "covers", ())
        named = {key.partition(".")[0] for key in covers}
        return not covers or any(name[0].islower() or name.lower() in self._methods for name in named)

    @cached_property
    def _methods(self) -> set[str]:
        """The words of the rows' methods; FedInit is a relaxed FedAvg."""
        lines = (setup.line(row) for setup in self.setups.values() for row in setup.lines)
        text = " ".join(line.method for line in lines).lower()
        return set(re.findall(r"\w+", text.replace("fedinit", "relaxed")))

    @property
    def paper(self) -> str:
        """The paper's short name."""
        return self.name.partition("/")[0]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of all its tables."""
        return tuple(column for table in self.tables for column in table.columns)

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows of all setups, in the order they come."""
        return tuple(dict.fromkeys(row for setup in self.setups.values() for row in setup.lines))

    @property
    def printed(self) -> dict[tuple[str, str], Printed]:
        """The paper's numbers by (row, heading)."""
        return {
            (row, heading): number
            for table in self.tables
            for row, numbers in table.printed.items()
            for heading, number in numbers.items()
        }

    @property
    def readings(self) -> tuple[str, ...]:
        """The readings that there are."""
        return (PRINTED,) if self.authors is None else (PRINTED, AUTHORS)

    def read(self, reading: str) -> Recipe:
        """Return the recipe in one of its readings."""
        if reading == self.reading:
            return self
        if self.authors is None:
            raise ConfigError(
                f"{self.name}: there is no reading {reading!r}: it rests on the text alone; leave out "
                f"--reading, or give {PRINTED}"
            )
        assert self.reading == PRINTED, "a reading is taken of the printed recipe"
        other = self.authors
        tables = tuple(
            replace(
                table,
                columns=tuple(
                    replace(column, measure=other.measures.get(column.heading, column.measure))
                    for column in table.columns
                ),
            )
            for table in self.tables
        )
        return replace(
            self,
            setups=other.setups,
            tables=tables,
            assumptions=other.assumptions,
            panels=self.panels if other.panels is None else other.panels,
            reading=AUTHORS,
        )

    def scale(self, name: str) -> RecipeScale:
        """Return one of its scales."""
        if name == PAPER:
            return RecipeScale(note="as printed", seeds=self.seeds)
        return self.cpu if name == CPU else self.smoke or smoke_scale(self)

    def changed(self, **changes: Any) -> Recipe:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


_SMOKE_ROUNDS = 4
_SMOKE: Settings = MappingProxyType(
    {
        "data.name": "digits",
        "data.clients": 6,
        "data.options": {},
        "data.augment": None,
        "model.name": "mlp",
        "model.init": None,
        "rounds": _SMOKE_ROUNDS,
        "eval_every": 1,
        "cohort": 3,
        "work.epochs": 1,
        "work.batch_size": 50,
        "engine": "serial",
        "threads": 1,
        "study.pairs": 1,
        "study.every": 2,
        "study.points": 40,
        "study.components": 4,
    }
)


def smoke_scale(recipe: Recipe) -> RecipeScale:
    """Return the scale of seconds that fits most recipes: digits, a small network, four rounds, two seeds."""
    setups = {
        name: {
            "data.split": "IID" if setup.settings.get("data.split") == "IID" else "DirichletByClass(0.5)",
            "data.noise": None,
        }
        for name, setup in recipe.setups.items()
    }
    note = f"digits, a small network and {_SMOKE_ROUNDS} rounds: it shows that the recipe works, no more"
    return RecipeScale(note=note, seeds=2, settings=_SMOKE, setups=setups)


def merged(parts: Sequence[Settings]) -> dict[str, Any]:
    """Return settings, later ones over earlier ones; epochs and steps take each other's place."""
    made: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            made.pop(_EITHER.get(key, ""), None)
            made[key] = value
    return made


_EITHER = {"work.epochs": "work.steps", "work.steps": "work.epochs"}
