"""`fedkeel split`: look at a split before training on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkeel.cli import options as opt
from fedkeel.common.errors import ConfigError
from fedkeel.common.files import storage_errors
from fedkeel.common.progress import console
from fedkeel.experiments.experiment import Experiment
from fedkeel.report.page.rendering import render

if TYPE_CHECKING:
    from fedkeel.report.splits import SplitCounts

_EXAMPLES = (
    '[bold]Examples[/]\n\nfedkeel split --split "DirichletByClass(0.1)" --clients 20\n\n'
    'fedkeel split --split "DirichletByClient(0.3)" --data cifar10 --clients 100 --picture split.html\n\n'
    "fedkeel split experiment.toml --picture split.png"
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES + opt.OTHER_SETTINGS)(split)


@opt.takes_experiment(part="data")
def split(
    experiment: Experiment,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a picture: .html, .svg or .png.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Draw a split: clients across, classes down, darker for more samples."""
    from fedkeel.report import splits as draw  # noqa: PLC0415  loads PyTorch

    kinds: dict[str, Callable[[SplitCounts], str | bytes]] = {
        ".html": lambda counts: render(draw.as_document(counts)),
        ".svg": draw.as_svg,
        ".png": draw.as_png,
    }
    if picture is not None and picture.suffix not in kinds:
        raise ConfigError(f"--picture {picture}: end its name in one of {', '.join(kinds)}")
    federation = experiment.federation()
    counts = draw.count_split(federation)
    if picture is not None:
        drawn = kinds[picture.suffix](counts)
        with storage_errors(picture):
            picture.write_bytes(drawn if isinstance(drawn, bytes) else drawn.encode())
    if as_json:
        told = {"title": counts.title, "hash": federation.fingerprint(), "counts": counts.counts.tolist()}
        print(json.dumps(told))
        return
    console().print(draw.as_text(counts, console().width), markup=False, highlight=False)
    if picture is not None:
        console().print(f"picture          {picture}", markup=False, highlight=False)
