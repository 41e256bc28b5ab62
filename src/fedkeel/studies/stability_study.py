"""Stability as a study of several methods: how far two runs part that differ in one client or one sample."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.folders import method_folder
from fedkeel.experiments.run_all import IndependentRun
from fedkeel.report.page.document import Table, Text
from fedkeel.report.page.parts import PageParts
from fedkeel.studies.base import SEEDS, Counts, Results, Study, Texts, asked
from fedkeel.studies.comparison import METHODS, distinct_methods
from fedkeel.studies.measured import (
    Measured,
    MeasuredRun,
    OnRow,
    by_label,
    grouped,
    serial_unless_asked,
    study_parts,
)
from fedkeel.studies.stability_page import (
    stability_section,
    stability_table,
    stability_text,
    stability_verdict,
)

SAMPLES = "Samples on which models are compared."


class StabilityStudy(Study):
    """Pairs of runs that differ in one client (FedSAGD) or one sample (FedInit), for each method and seed."""

    kind: ClassVar = "stability study"
    command: ClassVar = "study stability"
    about: ClassVar = "How far two runs part that differ in one client (FedSAGD) or one sample (FedInit)."
    examples: ClassVar = (
        "fedkeel study stability --method fedavg --method fedprox --method fedsagd --rounds 60",
        "fedkeel study stability --method fedavg --method fedinit --replace sample --out runs/stability",
    )
    without: ClassVar = ("method", "held_out", "track")
    shows_training: ClassVar = False

    methods: Texts = asked(..., METHODS, flag="--method", metavar="METHOD", many=True)
    seeds: int = asked(1, SEEDS, metavar="N", ge=1)
    pairs: int = asked(5, "Replaced clients, each a pair of runs.", ge=1)
    replace: Literal["client", "sample"] = asked("client", "What differs: one client, or one sample.")
    held_out: int | None = asked(None, "Clients held out of training, to replace others; by default 5.", ge=1)
    drawn_by: int | None = asked(None, "Replace clients that are drawn within so many rounds.", ge=1)
    drawn_at_least: int | None = asked(None, "Replace clients that are drawn at least so often.", ge=1)
    local_round: Counts | None = asked(
        None, "Round in which walks are compared; repeatable. Default: 0, 10, 50, …", many=True
    )
    samples: int = asked(1000, SAMPLES, ge=2)

    def checked(self) -> Self:
        """Check the methods."""
        return self.changed(methods=distinct_methods(self.methods))

    @property
    def base(self) -> Experiment:
        """The experiment that all runs share, some of its clients held out."""
        held_out = self.held_out or self.experiment.data.held_out or 5
        return self.experiment.with_settings([f"data.held_out={held_out}"])

    def shared(self) -> dict[str, Any]:
        """Return what all its runs share; methods, seeds and pairs may grow."""
        table = {key: part for key, part in self.base.table().items() if key != "method"}
        return {
            **table,
            "replaced": self.replace,
            "drawn_by": self.drawn_by,
            "drawn_at_least": self.drawn_at_least,
            "points": self.samples,
            "local_rounds": None if self.local_round is None else list(self.local_round),
        }

    def runs(self, out: Path) -> list[IndependentRun[Measured]]:
        """Return a run for each method and seed, which makes all its pairs."""
        return list(self._runs(out).values())

    def _runs(self, out: Path) -> dict[str, MeasuredRun]:
        asked = {
            "replaced": self.replace,
            "pairs": self.pairs,
            "drawn_by": self.drawn_by,
            "drawn_at_least": self.drawn_at_least,
            "local_rounds": None if self.local_round is None else list(self.local_round),
            "points": self.samples,
        }
        base = self.base
        return {
            label: MeasuredRun(
                label,
                measure_stability,
                base.model_copy(update={"method": method, "seed": seed}).table(),
                asked,
                folder,
                base.rounds * (self.pairs + 1),
            )
            for label, method, seed, folder in labelled(self, out)
        }

    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return what was found for each method, with several seeds for each of them."""
        return by_label(self, labelled(self, out), results, self._runs(out))

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return its charts and tables."""
        found = numbers["methods"]
        title = titled("Stability", self)
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


def titled(what: str, study: Any) -> str:
    """Return the title of a study of methods."""
    seeds = "" if study.seeds == 1 else f", {study.seeds} seeds"
    return f"{what} of {', '.join(study.methods)}{seeds}"


def labelled(study: Any, out: Path) -> list[tuple[str, str, int, Path]]:
    """Return methods × seeds: label, method, seed and directory; of one seed the label is the method."""
    first = study.experiment.seed
    return [
        (
            method if study.seeds == 1 else f"{method}, seed {seed}",
            method,
            seed,
            (out if seed == first else out / f"seed-{seed}") / method_folder(method),
        )
        for seed in range(first, first + study.seeds)
        for method in study.methods
    ]


def measure_stability(
    table: Mapping[str, Any], asked: Mapping[str, Any], directory: Path, on_row: OnRow
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
