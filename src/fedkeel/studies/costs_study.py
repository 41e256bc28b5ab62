"""What methods cost as a study: counted in short real runs, beside what the papers print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from fedkeel.common.errors import ConfigError
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.run_all import IndependentRun
from fedkeel.report.page.document import Section, Table, Text
from fedkeel.report.page.parts import PageParts
from fedkeel.studies.base import Results, Texts, asked
from fedkeel.studies.comparison import METHODS
from fedkeel.studies.measured import (
    Measured,
    MeasuredRun,
    MeasuredStudy,
    OnRow,
    some_measured,
    study_parts,
)

PRINTED = (
    "FedAvg",
    "FedAdam",
    "FedSAM",
    "SCAFFOLD",
    "FedDyn",
    "FedCM",
    "FedInit",
    "FedProx",
    "FedLNAG",
    "MimeLite",
    "FedANAG",
    "FedACG",
    "FedSAGD",
)
_RATIOS = {"unicast", "broadcast", "gradients", "forwards", "seconds"}
_LEGEND = (
    "down, up, kept, stored, working, server: vectors of the model's length, of a client and round. All "
    "else: ratios against FedAvg. By default counted in runs of a small network on digits: 10 of 20 clients, "
    "10 local steps. Stages together: the mean over the run's rounds, and the most memory."
)
_SECONDS = (
    "seconds: a round's processor time over that of FedAvg's round beside it, the median of {rounds} rounds; "
    "all methods run a round in turn, on one thread, after one to warm up. It depends on machine and model: "
    "by default a tiny network, in the paper a ResNet-18."
)


class CostsStudy(MeasuredStudy):
    """Rounds of several methods in turn, counted; they share one run, since their times are compared."""

    kind: ClassVar = "costs study"
    command: ClassVar = "costs"
    about: ClassVar = (
        "Count what methods cost in short real runs, beside what the papers print; say where they differ.\n\n"
        "Without --method: all methods of the papers. Without options of an experiment: a small network on "
        "digits. Of stages, each is counted, and the whole; --rounds is the length of the run that weighs "
        "them. FedInit's Tables 7 and 9, the poster's table and the communication column of FedSAGD's "
        "Table 1."
    )
    examples: ClassVar = (
        "fedkeel costs",
        'fedkeel costs --method scaffold --method "relaxed(fedsagd, beta=0.1)"',
        'fedkeel costs --method fedavg --method "stages((feddyn, 150), fedavg)" --rounds 1000',
        "fedkeel costs --method scaffold --data cifar10 --model cnn --counted 5",
        "fedkeel costs --json | jq .disagreements",
    )
    without: ClassVar = ("method", "track")

    methods: Texts = asked(PRINTED, METHODS, flag="--method", metavar="METHOD", many=True)
    seeds: int = 1  # what is counted does not depend on it
    counted: int = asked(10, "Rounds that are played and counted.", ge=2)

    def checked(self) -> Self:
        """Check the methods, and that this machine's processor counts."""
        from fedkeel.experiments.expression import parse_method, spell_method  # noqa: PLC0415  heavy

        if self.experiment.device != "cpu":
            raise ConfigError(
                f"device = {self.experiment.device!r}: costs are counted on the cpu: leave it out"
            )
        named = {spell_method(text): parse_method(text) for text in self.methods}
        return self.changed(methods=tuple(named))

    def quantities(self) -> dict[str, Any]:
        """Return all that it counts."""
        return {"methods": list(self.methods), "counted": self.counted}

    def runs(self, out: Path) -> list[IndependentRun[Measured]]:
        """Return the one run that they share."""
        label = f"rounds of {len(self.methods)} methods" if len(self.methods) > 1 else "rounds"
        table = self.experiment.table()
        return [MeasuredRun(label, measure_costs, table, self.quantities(), out / "counted", self.counted)]

    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return what was counted, what is printed, and where they disagree."""
        some_measured(results)
        found: dict[str, Any] = results[out / "counted"].found
        return found

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return its tables."""
        blocks = tuple(block.model_copy(update={"id": f"page-{block.id}"}) for block in self.summary(numbers))
        about = "Counted in short real runs, beside what the papers print."
        section = Section(id="costs", title="Costs", about=about, blocks=blocks)
        return study_parts(f"Costs of {len(self.methods)} methods", None, [section], out)

    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a table per quantity, where they disagree, and how to read them."""
        from fedkeel.studies.costs.disagreements import conventions  # noqa: PLC0415  heavy
        from fedkeel.studies.costs.printed import FEDSAGD, POSTER, TABLE_7, TABLE_9  # noqa: PLC0415

        tables: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
            (
                "Communication",
                "communication",
                ("down", "up", "unicast", "broadcast"),
                (TABLE_9, POSTER, FEDSAGD),
            ),
            ("Computation", "gradients", ("gradients", "forwards"), (POSTER,)),
            ("Storage of a client", "storage", ("kept", "stored", "working", "server"), (TABLE_9, POSTER)),
            ("Time of a round", "seconds", ("seconds",), (TABLE_7,)),
        ]
        lines = numbers["counted"]
        told = [f"{one['method']}, {one['quantity']}: {one['text']}" for one in numbers["disagreements"]]
        return (
            *(
                Table(
                    id=quantity,
                    scores=True,
                    title=title,
                    headings=("method", *columns, *sources),
                    rows=tuple(
                        (
                            label,
                            *_counts(line, columns),
                            *_printed(numbers, line["method"], quantity, sources),
                        )
                        for label, line in _labelled(lines)
                    ),
                )
                for title, quantity, columns, sources in tables
            ),
            Text(id="seconds-text", paragraphs=(_SECONDS.format(rounds=self.counted - 1),)),
            Text(id="disagreements", paragraphs=("Where they disagree", *(told or ["nowhere"])), listed=True),
            Text(id="legend", paragraphs=("How to read it", _LEGEND, *conventions()), listed=True),
        )


def measure_costs(
    table: Mapping[str, Any], asked: Mapping[str, Any], directory: Path, on_row: OnRow
) -> dict[str, Any]:
    """Play the rounds and count."""
    from fedkeel.experiments.expression import parse_method  # noqa: PLC0415  heavy
    from fedkeel.studies.costs import PRINTED_COSTS, count, disagreements, small_run  # noqa: PLC0415

    experiment = Experiment.from_table(table)
    plain = experiment == Experiment(rounds=experiment.rounds)
    lines = count(
        [(method, parse_method(method)) for method in asked["methods"]],
        small_run(experiment.rounds) if plain else experiment.settings(),
        rounds=asked["counted"],
        progress=lambda done, total: on_row({"round": done - 1}),
    )
    named = {line.method for line in lines}
    return {
        "counted": [line.as_dict() for line in lines],
        "printed": [entry._asdict() for entry in PRINTED_COSTS if entry.method in named],
        "disagreements": [one._asdict() for one in disagreements(lines)],
    }


def _labelled(lines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each method, and below it its stages."""
    for line in lines:
        yield line["method"], line
        for number, stage in enumerate(line["stages"], start=1):
            yield f"  stage {number}: {stage['method']}, {stage['rounds']} of {line['rounds']} rounds", stage


def _counts(line: Mapping[str, Any], columns: tuple[str, ...]) -> list[str]:
    return [f"{line[name]:.2f}{'×' * (name in _RATIOS)}" for name in columns]


def _printed(numbers: Mapping[str, Any], method: str, quantity: str, sources: Sequence[str]) -> Iterator[str]:
    for source in sources:
        found = (
            entry["text"]
            for entry in numbers["printed"]
            if (entry["method"], entry["quantity"], entry["source"]) == (method, quantity, source)
        )
        yield next(found, "—")
