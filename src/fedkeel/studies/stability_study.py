"""Stability as a study of several methods: how far two runs part that differ in one client or one sample."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from fedkeel.experiments.experiment import Experiment
from fedkeel.report.page.document import Table, Text
from fedkeel.report.page.parts import PageParts
from fedkeel.studies.base import Counts, Results, asked
from fedkeel.studies.measured import MethodsStudy, OnRow, grouped, serial_unless_asked, study_parts
from fedkeel.studies.stability_page import (
    stability_section,
    stability_table,
    stability_text,
    stability_verdict,
)

SAMPLES = "Samples on which models are compared."


class StabilityStudy(MethodsStudy):
    """Pairs of runs that differ in one client (FedSAGD) or one sample (FedInit), for each method and seed."""

    kind: ClassVar = "stability study"
    command: ClassVar = "study stability"
    about: ClassVar = "How far two runs part that differ in one client (FedSAGD) or one sample (FedInit)."
    examples: ClassVar = (
        "fedkeel study stability --method fedavg --method fedprox --method fedsagd --rounds 60",
        "fedkeel study stability --method fedavg --method fedinit --replace sample --out runs/stability",
    )
    without: ClassVar = ("method", "held_out", "track")
    may_grow: ClassVar = ("pairs",)

    pairs: int = asked(5, "Replaced clients, each a pair of runs.", ge=1)
    replace: Literal["client", "sample"] = asked("client", "What differs: one client, or one sample.")
    held_out: int | None = asked(None, "Clients held out of training, to replace others; by default 5.", ge=1)
    drawn_by: int | None = asked(None, "Replace clients that are drawn within so many rounds.", ge=1)
    drawn_at_least: int | None = asked(None, "Replace clients that are drawn at least so often.", ge=1)
    local_round: Counts | None = asked(
        None, "Round in which walks are compared; repeatable. Default: 0, 10, 50, …", many=True
    )
    samples: int = asked(1000, SAMPLES, ge=2)

    def quantities(self) -> dict[str, Any]:
        """Return what is measured, by the names that `stability` takes."""
        return {
            "replaced": self.replace,
            "pairs": self.pairs,
            "drawn_by": self.drawn_by,
            "drawn_at_least": self.drawn_at_least,
            "local_rounds": None if self.local_round is None else list(self.local_round),
            "points": self.samples,
        }

    @property
    def base(self) -> Experiment:
        """The experiment that all runs share, some of its clients held out."""
        held_out = self.held_out or self.experiment.data.held_out or 5
        return self.experiment.with_settings([f"data.held_out={held_out}"])

    @property
    def rounds_of_run(self) -> int:
        """How many rounds all pairs of a method and seed take."""
        return self.base.rounds * (self.pairs + 1)

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return its charts and tables."""
        found = numbers["methods"]
        title = self.titled("Stability")
        return study_parts(
            title, stability_verdict(grouped(numbers)), [stability_section(found, seeds=self.seeds)], out
        )

    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the numbers of every method after the last round, and who was replaced."""
        found = numbers["methods"]
        headings, rows = stability_table(found)
        return (
            Table(id="summary", title="", headings=headings, rows=tuple(rows)),
            Text(
                id="text",
                paragraphs=tuple(stability_text(next(iter(found.values())), seeds=self.seeds).split("\n")),
            ),
        )

    @classmethod
    def measure(
        cls, table: Mapping[str, Any], asked: Mapping[str, Any], directory: Path, on_row: OnRow
    ) -> dict[str, Any]:
        """Make the pairs of one method and seed."""
        from fedkeel.studies.stability import stability  # noqa: PLC0415  heavy

        experiment = Experiment.from_table(table)

        def progress(run: int, row: Any) -> None:
            if row is not None:
                on_row({**row, "round": run * experiment.rounds + row["round"]})

        found = stability(
            experiment.settings(),
            serial_unless_asked(experiment),
            directory=directory,
            progress=progress,
            **asked,
        )
        return found.as_dict()
