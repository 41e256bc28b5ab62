"""Interaction as a study of several methods: which features local and global models share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from fedkeel.experiments.experiment import Experiment
from fedkeel.report.page.document import Table
from fedkeel.report.page.parts import PageParts
from fedkeel.running.run_directory import count_rows
from fedkeel.studies.base import Results, asked
from fedkeel.studies.interaction_page import interaction_section, interaction_table, interaction_verdict
from fedkeel.studies.measured import MethodsStudy, OnRow, grouped, serial_unless_asked, study_parts
from fedkeel.studies.stability_study import SAMPLES

if TYPE_CHECKING:
    from fedkeel.studies.interaction import FeatureSettings


class InteractionStudy(MethodsStudy):
    """The interaction tensor of Rethinking §3.3, after every so many rounds of each method and seed."""

    kind: ClassVar = "interaction study"
    command: ClassVar = "study interaction"
    about: ClassVar = (
        "Which features local and global models share: the interaction tensor of Rethinking §3.3."
    )
    examples: ClassVar = (
        "fedkeel study interaction --method fedavg --method feddyn --rounds 40 --every 10",
        "fedkeel study interaction --method fedavg --split IID --out runs/features --json > features.json",
    )
    without: ClassVar = ("method", "track")

    every: int = asked(10, "Rounds between snapshots.", ge=1)
    samples: int = asked(500, SAMPLES, ge=2)
    components: int = asked(20, "Principal components per model, K.", ge=1)
    gamma_corr: float = asked(0.5, "Correlation above which features are one.")
    centre: bool = asked(False, "Centre the features first.")
    entries: Literal["absolute", "signed"] = asked(
        "absolute", "Which points contain a feature: by |v|, or by v with its sign."
    )

    def checked(self) -> Self:
        """Check the methods, and that there is a snapshot."""
        self._features().rounds(self.experiment.rounds)
        return super().checked()

    def _features(self) -> FeatureSettings:
        from fedkeel.studies.interaction import FeatureSettings  # noqa: PLC0415  heavy

        return FeatureSettings(
            self.every, self.samples, self.components, self.gamma_corr, self.centre, entries=self.entries
        )

    def quantities(self) -> dict[str, Any]:
        """Return the settings of the snapshots."""
        return asdict(self._features())

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return its chart and table."""
        found = numbers["methods"]
        title = self.titled("Interaction")
        return study_parts(title, interaction_verdict(grouped(numbers)), [interaction_section(found)], out)

    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return every snapshot of every method."""
        headings, rows = interaction_table(numbers["methods"])
        return (Table(id="summary", title="", headings=headings, rows=tuple(rows)),)

    @classmethod
    def measure(
        cls, table: Mapping[str, Any], asked: Mapping[str, Any], directory: Path, on_row: OnRow
    ) -> list[dict[str, Any]]:
        """Take the snapshots of one method and seed."""
        from fedkeel.studies.interaction import FeatureSettings, study  # noqa: PLC0415  heavy

        experiment = Experiment.from_table(table)
        taken = study(
            experiment.settings(),
            serial_unless_asked(experiment),
            features=FeatureSettings(**{**asked, "gammas": tuple(asked["gammas"])}),
            directory=directory,
            progress=on_row,
        )
        return [one._asdict() for one in taken]

    @staticmethod
    def count_done(directory: Path) -> int:
        """Return how many rounds of a run are on disk."""
        return count_rows(directory / "run")
