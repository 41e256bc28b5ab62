"""`fedkeel split`: look at a split before training on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkeel.cli import options as opt
from fedkeel.errors import ConfigError
from fedkeel.progress import console

if TYPE_CHECKING:
    from fedkeel.report.splits import SplitCounts

_EXAMPLES = (
    '[bold]Examples[/]\n\nfedkeel split "DirichletByClass(0.1)" --clients 20\n\n'
    'fedkeel split "DirichletByClient(0.3)" --data cifar10 --clients 100 --out split.html\n\n'
    'fedkeel split "Pathological(2)" --clients 50 --out split.png'
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES)(split)


def split(
    splitter: Annotated[str, typer.Argument(help="How clients differ, as DirichletByClass(0.1) or IID.")],
    data: Annotated[str, typer.Option(help="Data set, as digits or cifar10.")] = "digits",
    clients: Annotated[int | None, typer.Option(help="Number of clients; all groups for Natural.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Also write a picture: .html, .svg or .png.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Draw a split: clients across, classes down, darker for more samples."""
    from fedkeel.data import load  # noqa: PLC0415  heavy
    from fedkeel.experiments.expression import parse_split  # noqa: PLC0415
    from fedkeel.files import storage_errors  # noqa: PLC0415
    from fedkeel.report import splits as draw  # noqa: PLC0415

    kinds: dict[str, Callable[[SplitCounts], str | bytes]] = {
        ".html": draw.as_html,
        ".svg": draw.as_svg,
        ".png": draw.as_png,
    }
    if out is not None and out.suffix not in kinds:
        raise ConfigError(f"--out {out}: choose one of {', '.join(kinds)}")
    rule = parse_split(splitter)
    natural = type(rule).__name__ == "Natural"
    federation = load(data).split(rule, clients=None if natural else clients, seed=seed)
    picture = draw.count_split(federation)
    if out is not None:
        drawn = kinds[out.suffix](picture)
        with storage_errors(out):
            out.write_bytes(drawn if isinstance(drawn, bytes) else drawn.encode())
    if as_json:
        told = {"title": picture.title, "hash": federation.fingerprint(), "counts": picture.counts.tolist()}
        print(json.dumps(told))
        return
    console().print(draw.as_text(picture, console().width), markup=False, highlight=False)
    if out is not None:
        console().print(f"picture          {out}", markup=False, highlight=False)
