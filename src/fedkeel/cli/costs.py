"""`fedkeel costs`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli.stage_progress import StageProgress
from fedkeel.common.errors import ConfigError
from fedkeel.common.progress import console, plain_table
from fedkeel.experiments.experiment import Experiment

if TYPE_CHECKING:
    from fedkeel.studies.costs import Disagreement, MethodCosts, Quantity

_EXAMPLES = """[bold]Examples[/]

fedkeel costs

fedkeel costs --method scaffold --method "relaxed(fedsagd, beta=0.1)"

fedkeel costs --method fedavg --method "stages((feddyn, 150), fedavg)" --rounds 1000

fedkeel costs --method scaffold --data cifar10 --model cnn --counted 5

fedkeel costs --json | jq .disagreements"""
_PRINTED = (
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


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES + opt.OTHER_SETTINGS)(costs)


@opt.takes_experiment(leave_out=("method", "track"))
def costs(
    experiment: Experiment,
    method: opt.MethodsOrAll = None,
    counted: Annotated[int, typer.Option(min=2, help="Rounds that are played and counted.")] = 10,
    as_json: opt.Json = False,
) -> None:
    """Count what methods cost in short real runs, beside what the papers print; say where they differ.

    Without --method: all methods of the papers. Without options of an experiment: a small network on digits.
    Of stages, each is counted, and the whole; --rounds is the length of the run that weighs them. FedInit's
    Tables 7 and 9, the poster's table and the communication column of FedSAGD's Table 1.
    """
    from fedkeel.experiments.expression import parse_method, spell_method  # noqa: PLC0415  heavy
    from fedkeel.studies.costs import count, disagreements, small_run  # noqa: PLC0415

    if experiment.device != "cpu":
        raise ConfigError(f"device = {experiment.device!r}: costs are counted on the cpu: leave it out")
    named = {spell_method(text): parse_method(text) for text in method or _PRINTED}
    plain = experiment == Experiment(rounds=experiment.rounds)
    base = small_run(experiment.rounds) if plain else experiment.settings()
    with StageProgress(stderr=True) as stages:
        what = f"rounds of {len(named)} methods" if len(named) > 1 else "rounds"
        lines = count(list(named.items()), base, rounds=counted, progress=partial(stages.update, what))
    found = disagreements(lines)
    if as_json:
        print(json.dumps(_plain(lines, found), ensure_ascii=False, indent=2))
    else:
        _print(lines, found, counted)


def _plain(lines: list[MethodCosts], found: list[Disagreement]) -> dict[str, Any]:
    from fedkeel.studies.costs import PRINTED_COSTS  # noqa: PLC0415

    named = {line.method for line in lines}
    return {
        "counted": [line.as_dict() for line in lines],
        "printed": [entry._asdict() for entry in PRINTED_COSTS if entry.method in named],
        "disagreements": [one._asdict() for one in found],
    }


def _labelled(lines: list[MethodCosts]) -> Iterator[tuple[str, MethodCosts]]:
    """Yield each method, and below it its stages."""
    for line in lines:
        yield line.method, line
        for number, stage in enumerate(line.stages, start=1):
            yield f"  stage {number}: {stage.method}, {stage.rounds} of {line.rounds} rounds", stage


def _print(lines: list[MethodCosts], found: list[Disagreement], rounds: int) -> None:
    from fedkeel.studies.costs.disagreements import conventions  # noqa: PLC0415
    from fedkeel.studies.costs.printed import FEDSAGD, POSTER, TABLE_7, TABLE_9  # noqa: PLC0415

    screen = console()
    tables: list[tuple[str, Quantity, tuple[str, ...], tuple[str, ...]]] = [
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
    for title, quantity, columns, sources in tables:
        cells = [
            (label, *_counts(line, columns), *(_printed(line.method, quantity, s) for s in sources))
            for label, line in _labelled(lines)
        ]
        screen.print(f"\n{title}", style="bold")
        screen.print(plain_table(("method", *columns, *sources), cells))
    _paragraph(_SECONDS.format(rounds=rounds - 1))
    told = [f"{one.method}, {one.quantity}: {one.text}" for one in found]
    _paragraphs("Where they disagree", told or ["nowhere"])
    _paragraphs("How to read it", [*_LEGEND, *conventions()])


_LEGEND = (
    "down, up, kept, stored, working, server: vectors of the model's length, of a client and round. All "
    "else: ratios against FedAvg. By default counted in runs of a small network on digits: 10 of 20 clients, "
    "10 local steps. Stages together: the mean over the run's rounds, and the most memory.",
)
_SECONDS = (
    "seconds: a round's processor time over that of FedAvg's round beside it, the median of {rounds} rounds; "
    "all methods run a round in turn, on one thread, after one to warm up. It depends on machine and model: "
    "by default a tiny network, in the paper a ResNet-18."
)


def _counts(line: MethodCosts, columns: tuple[str, ...]) -> list[str]:
    ratios = {"unicast", "broadcast", "gradients", "forwards", "seconds"}
    return [f"{getattr(line, name):.2f}{'×' * (name in ratios)}" for name in columns]


def _printed(method: str, quantity: Quantity, source: str) -> str:
    from fedkeel.studies.costs.printed import printed_costs  # noqa: PLC0415

    return next((entry.text for entry in printed_costs(method, quantity) if entry.source == source), "—")


def _paragraphs(title: str, texts: list[str]) -> None:
    console().print(f"\n{title}", style="bold")
    for text in texts:
        _paragraph(text)


def _paragraph(text: str) -> None:
    screen = console()
    width = min(110, screen.width)
    screen.print(textwrap.fill(text, width, subsequent_indent="  "), markup=False, highlight=False)
