"""Studies whose runs measure something and give plain values: stability, interaction, constants and costs."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from fedkeel.common.errors import ConfigError, Diverged
from fedkeel.common.tomlfile import flat
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.folders import method_folder
from fedkeel.experiments.planned_run import SPEED_ONLY
from fedkeel.report.page.document import Code, Document, FactList, Section, Verdict
from fedkeel.report.page.parts import PageParts
from fedkeel.settings.options import Execution
from fedkeel.studies.artifacts import read_part, write_part
from fedkeel.studies.base import SEEDS, Results, Study, Texts, asked
from fedkeel.studies.comparison import METHODS, distinct_methods
from fedkeel.studies.description import read_description

FOUND = "found.json"
OnRow = Callable[[Mapping[str, Any]], None]
Measure = Callable[[Mapping[str, Any], Mapping[str, Any], Path, OnRow], Any]


class Measured(NamedTuple):
    """What was measured, as JSON has it, or why the run diverged."""

    found: Any = None
    problem: str | None = None
    rows: Sequence[Mapping[str, Any]] = ()


class MeasuredRun(NamedTuple):
    """A run that measures: `measure(experiment, asked, directory, on_row)` gives plain values.

    `measure` is a function of a module, so that it can be sent to another process; `experiment` is a table.
    What it gives is kept, and read again where the same is asked for.
    """

    label: str
    measure: Measure
    experiment: Mapping[str, Any]
    asked: Mapping[str, Any]
    directory: Path
    rounds: int
    count_done: Callable[[Path], int] | None = None

    @property
    def cost(self) -> float:
        """What a round costs."""
        return 1.0

    @property
    def sendable(self) -> tuple[Callable[..., Measured], tuple[Any, ...]]:
        """A function that makes it in another process, and what that takes."""
        return make_measured, tuple(self)

    def __str__(self) -> str:
        return self.label

    def finished(self) -> Measured | None:
        """Return what was measured, None where something is left to do."""
        kept = read_part(self.directory / FOUND) if (self.directory / FOUND).exists() else None
        return Measured(kept["found"]) if kept is not None and kept["asked"] == self._asked() else None

    def run(self, on_row: OnRow | None = None) -> Measured:
        """Measure; a run that diverges is a result too."""
        before = self.finished()
        if before is not None:
            return before
        try:
            found = self.measure(self.experiment, self.asked, self.directory, on_row or (lambda row: None))
        except Diverged as problem:
            return Measured(problem=f"{self.label}: {problem}")
        kept = write_part(self.directory / FOUND, {"asked": self._asked(), "found": found})
        return Measured(kept["found"])

    def rounds_done(self) -> int:
        """Return how many of its rounds are on disk."""
        return 0 if self.count_done is None else self.count_done(self.directory)

    def _asked(self) -> Any:
        return json.loads(json.dumps(dict(self.asked)))


def make_measured(*fields: Any) -> Measured:
    """Measure in a worker."""
    return MeasuredRun(*fields).run()


class MeasuredStudy(Study):
    """A study that measures: its runs keep what was found, and no history that could go on.

    A kind has `quantities`, what its runs are asked for; those in `may_grow` are no part of what its
    directory belongs to.
    """

    shows_training: ClassVar = False
    may_grow: ClassVar[tuple[str, ...]] = ()
    may_change: ClassVar = frozenset(SPEED_ONLY) - {"rounds", "engine", "threads"}  # of them no bit depends

    @abstractmethod
    def quantities(self) -> dict[str, Any]:
        """Return what is measured, by the names that `measure` takes."""

    @property
    def base(self) -> Experiment:
        """The experiment that all runs share."""
        return self.experiment

    def shared(self) -> dict[str, Any]:
        """Return what its directory belongs to."""
        free = {"track", *self.without}
        asked_for = {name: one for name, one in self.quantities().items() if name not in self.may_grow}
        return {**{key: part for key, part in self.base.table().items() if key not in free}, **asked_for}

    def with_rounds(self, rounds: int) -> Self:
        """Refuse longer runs: what is measured in shorter ones is no part of them."""
        raise ConfigError(
            f"--rounds {rounds}: with longer runs a {self.kind} measures all anew: give its line with "
            "another --out"
        )


class MethodsStudy(MeasuredStudy):
    """A measurement of several methods and seeds, each in a run of its own."""

    methods: Texts = asked(..., METHODS, flag="--method", metavar="METHOD", many=True)
    seeds: int = asked(1, SEEDS, metavar="N", ge=1)

    @classmethod
    @abstractmethod
    def measure(
        cls, table: Mapping[str, Any], asked: Mapping[str, Any], directory: Path, on_row: OnRow
    ) -> Any:
        """Measure one method and seed."""

    def checked(self) -> Self:
        """Check the methods."""
        return self.changed(methods=distinct_methods(self.methods))

    @staticmethod
    def count_done(directory: Path) -> int:
        """Return how many rounds of a run are on disk."""
        return 0

    @property
    def rounds_of_run(self) -> int:
        """How many rounds a run plays."""
        return self.base.rounds

    def runs(self, out: Path) -> list[MeasuredRun]:
        """Return a run for each method and seed."""
        base, quantities = self.base, self.quantities()
        return [
            MeasuredRun(
                label,
                type(self).measure,
                base.model_copy(update={"method": method, "seed": seed}).table(),
                quantities,
                folder,
                self.rounds_of_run,
                self.count_done,
            )
            for label, method, seed, folder in self._labelled(out)
        ]

    def _labelled(self, out: Path) -> list[tuple[str, str, int, Path]]:
        """Return label, method, seed and directory of each run; of one seed the label is the method."""
        first = self.experiment.seed
        return [
            (
                method if self.seeds == 1 else f"{method}, seed {seed}",
                method,
                seed,
                (out if seed == first else out / f"seed-{seed}") / method_folder(method),
            )
            for seed in range(first, first + self.seeds)
            for method in self.methods
        ]

    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return what was found by label; of several seeds also whose each is."""
        some_measured(results)
        labels = self._labelled(out)
        found = {label: results[folder] for label, _, _, folder in labels}
        numbers: dict[str, Any] = {
            "methods": {label: one.found for label, one in found.items() if one.problem is None}
        }
        if self.seeds > 1:
            numbers["labels"] = {label: {"method": method, "seed": seed} for label, method, seed, _ in labels}
        return numbers

    def titled(self, what: str) -> str:
        """Return a title."""
        seeds = "" if self.seeds == 1 else f", {self.seeds} seeds"
        return f"{what} of {', '.join(self.methods)}{seeds}"


def serial_unless_asked(experiment: Experiment) -> Execution:
    """Return how a study executes its runs: serially, so that its numbers do not depend on a measurement."""
    execution = experiment.execution()
    if experiment.engine != "auto":
        return execution
    return Execution(**{**execution.model_dump(), "engine": "serial"})


def study_parts(title: str, verdict: Verdict | None, sections: Sequence[Section], out: Path) -> PageParts:
    """Return the page of a study that has sections of its own, and how it was made."""
    whole = Document(
        title=title, kind="study", verdict=verdict, sections=(*sections, provenance(read_description(out)))
    )
    return PageParts(f"Study in {out.name}", sections=tuple(sections), whole=whole)


def provenance(described: Mapping[str, Any]) -> Section:
    """Return the command line of a study, and what decides its numbers."""
    rows = tuple(
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in flat(described["settings"]).items()
        if value is not None
    )
    command = described.get("command")
    again = () if command is None else (Code(id="command", title="Run it again", text=command),)
    return Section(id="provenance", title="Provenance", blocks=(*again, FactList(id="settings", rows=rows)))


def some_measured(results: Mapping[Path, Measured]) -> None:
    """Raise Diverged where nothing could be measured: there is nothing to conclude from."""
    problems = [one.problem for one in results.values()]
    if all(problem is not None for problem in problems):
        raise Diverged("; ".join(dict.fromkeys(filter(None, problems))), round=0)


def grouped(numbers: Mapping[str, Any]) -> dict[str, list[tuple[int, Any]]]:
    """Return what was found by method, each with its seed."""
    labels = numbers.get("labels", {})
    found: dict[str, list[tuple[int, Any]]] = {}
    for label, one in numbers["methods"].items():
        whose = labels.get(label, {"method": label, "seed": 0})
        found.setdefault(whose["method"], []).append((whose["seed"], one))
    return found


def several(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count} {what}{'s' * (count != 1)}"
