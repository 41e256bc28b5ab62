"""Runs that measure something and give plain values: stability, interaction, constants and costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.errors import Diverged
from fedkeel.common.tomlfile import flat
from fedkeel.experiments.experiment import Experiment
from fedkeel.report.page.document import Code, Document, FactList, Section, Verdict
from fedkeel.report.page.parts import PageParts
from fedkeel.settings.options import Execution
from fedkeel.studies.artifacts import read_part, write_part
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


def by_label(
    study: Any, labels: Sequence[tuple[str, str, int, Path]], results: Any, runs: Any
) -> dict[str, Any]:
    """Return what was found by label; of several seeds also whose each is."""
    some_measured(results)
    found = {label: results[runs[label].directory] for label, *_ in labels}
    numbers: dict[str, Any] = {
        "methods": {label: one.found for label, one in found.items() if one.problem is None}
    }
    if study.seeds > 1:
        numbers["labels"] = {label: {"method": method, "seed": seed} for label, method, seed, _ in labels}
    return numbers


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
