"""The constants of the theorems as a study: measured along a pilot of an experiment, for each seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from fedkeel.experiments import STUDY_FILE
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.run_all import IndependentRun
from fedkeel.report.page.document import Table, Text
from fedkeel.report.page.parts import PageParts
from fedkeel.settings.options import SERIAL
from fedkeel.studies.base import SEEDS, Results, asked
from fedkeel.studies.constants_page import (
    HEADINGS,
    constant_notes,
    constant_rows,
    constants_section,
    constants_verdict,
)
from fedkeel.studies.description import read_description
from fedkeel.studies.measured import (
    Measured,
    MeasuredRun,
    MeasuredStudy,
    OnRow,
    some_measured,
    study_parts,
)


class ConstantsStudy(MeasuredStudy):
    """What the theorems ask of the losses, along and around a pilot."""

    kind: ClassVar = "constants study"
    command: ClassVar = "study constants"
    about: ClassVar = (
        "The constants that the theorems ask for, along and around a pilot; `fedkeel advise` says what "
        "follows.\n\nA largest value over samples is a lower bound of the true constant: a longer pilot can "
        "raise it."
    )
    examples: ClassVar = (
        "fedkeel study constants --clients 20 --cohort 20",
        "fedkeel study constants --data cifar10 --model cnn --out runs/constants",
        "fedkeel study constants --json > constants.json",
    )
    without: ClassVar = ("rounds", "track")

    seeds: int = asked(1, SEEDS, metavar="N", ge=1)
    pilot_rounds: int = asked(30, "Rounds of the pilot.", ge=1)
    pilot_points: int = asked(6, "Models of it that are measured.", ge=2)
    pilot_clients: int = asked(20, "Clients that are measured, at most.", ge=1)
    pilot_samples: int = asked(256, "Samples of each, at most.", ge=1)

    def quantities(self) -> dict[str, Any]:
        """Return how much is measured."""
        from fedkeel.studies.constants import Effort  # noqa: PLC0415  heavy

        own = {name: getattr(self, f"pilot_{name}") for name in ("rounds", "points", "clients", "samples")}
        return {f"pilot_{name}": value for name, value in asdict(Effort(**own)).items()}

    def began_in_old_format(self, out: Path) -> bool:
        """Tell whether version 0.1 measured in this directory itself."""
        return (out / STUDY_FILE).exists() and read_description(out).get("plan") is None

    def runs(self, out: Path) -> list[IndependentRun[Measured]]:
        """Return a run for each seed."""
        return list(self._runs(out).values())

    def _runs(self, out: Path) -> dict[str, MeasuredRun]:
        first = self.experiment.seed
        return {
            f"seed {seed}": MeasuredRun(
                f"{self.experiment.method}, seed {seed}",
                measure_constants,
                self.experiment.model_copy(update={"seed": seed}).table(),
                self.quantities(),
                out if seed == first and self.began_in_old_format(out) else out / f"seed-{seed}",
                self.pilot_rounds,
            )
            for seed in range(first, first + self.seeds)
        }

    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return what was measured, of several seeds for each."""
        some_measured(results)
        found = {label: results[run.directory] for label, run in self._runs(out).items()}
        measured = {label: one.found for label, one in found.items() if one.problem is None}
        if self.seeds == 1:
            return dict(next(iter(measured.values())))
        return {"seeds": measured}

    def _found(self, numbers: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        several: dict[str, Mapping[str, Any]] = numbers.get("seeds", {"": numbers})
        return several

    @property
    def _title(self) -> str:
        return f"Constants of {self.experiment.method} on {self.experiment.data.name}"

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return its charts and tables; the verdict is of the first seed."""
        found = self._found(numbers)
        sections = [constants_section(one) for one in found.values()]
        if len(found) > 1:
            sections = [
                section.model_copy(
                    update={"id": f"{section.id}-{label}", "title": f"{section.title}, {label}"}
                )
                for label, section in zip(found, sections, strict=True)
            ]
        return study_parts(self._title, constants_verdict(next(iter(found.values()))), sections, out)

    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what was measured, with its spread and what is behind it."""
        blocks: list[Any] = []
        for label, found in self._found(numbers).items():
            title = f"{self._title}, pilot of {found['pilot_rounds']} rounds"
            blocks += [
                Table(
                    id=f"summary-{label}",
                    title=f"{title}, {label}" if label else title,
                    headings=("", *HEADINGS),
                    rows=tuple(constant_rows(found)),
                    left=(0, len(HEADINGS)),
                ),
                Text(id=f"notes-{label}", paragraphs=constant_notes(found)),
            ]
        return tuple(blocks)


def measure_constants(
    table: Mapping[str, Any], asked: Mapping[str, Any], directory: Path, on_row: OnRow
) -> dict[str, Any]:
    """Measure the constants along one pilot."""
    from fedkeel.studies.constants import Effort, study  # noqa: PLC0415  heavy

    experiment = Experiment.from_table(table)

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "pilot" and done:
            on_row({"round": done - 1})

    found = study(
        experiment.settings(),
        SERIAL.model_copy(update={"device": experiment.device}),
        effort=Effort(**{name.removeprefix("pilot_"): value for name, value in asked.items()}),
        directory=directory,
        progress=progress,
    )
    return found.as_dict()
