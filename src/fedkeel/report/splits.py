"""The picture of a split: clients across, classes down, a disc's area the number of samples."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedkeel.common.errors import DataError
from fedkeel.common.picture import disc_picture
from fedkeel.data.federation import Federation
from fedkeel.data.labels import LabelCounts, class_names, count_labels
from fedkeel.data.sources.readers import encode_png
from fedkeel.report.page.clients import label_grid
from fedkeel.report.page.document import Axis, Chart, Document, Section, Series

_SHADES = " ░▒▓█"
_INK = np.array([37, 99, 201])
_SHOWN = 100  # clients of a picture


class SplitCounts(NamedTuple):
    """How a federation is split: samples of each client (row) and class (column)."""

    title: str
    counts: LabelCounts
    names: tuple[str, ...]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Return what one wants to know of a split at a glance."""
        sizes = self.counts.sum(1)
        shares = self.counts / sizes[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(shares > 0, shares * np.log(shares), 0.0).sum(1)
        present = (self.counts > 0).sum(1)
        return [
            ("clients", f"{len(sizes)}"),
            ("samples", f"{sizes.sum():,}"),
            ("samples per client", f"{sizes.min()} to {sizes.max()}, median {np.median(sizes):g}"),
            ("classes per client", f"{present.min()} to {present.max()}, median {np.median(present):g}"),
            (
                "mixture",
                f"{entropy.mean() / math.log(max(2, len(self.names))):.0%} of an even one",
            ),
        ]


def count_split(federation: Federation) -> SplitCounts:
    """Count each client's samples by class."""
    counts = count_labels(federation)
    if counts is None:
        raise DataError("only classes can be drawn: these targets are not one whole number per sample")
    origin = federation.origin
    title = f"{origin.get('dataset', 'data')}, {origin.get('splitter', 'given split')}, {len(counts)} clients"
    return SplitCounts(title, counts, class_names(federation, counts.shape[1]))


def as_text(picture: SplitCounts, width: int = 100) -> str:
    """Return the picture for a terminal: a column per client, a line per class, darker for more samples."""
    shown = min(len(picture.counts), max(1, width - 8))
    counts = picture.counts[:shown]
    level = np.ceil(counts / max(1, counts.max()) * (len(_SHADES) - 1)).astype(int)
    label = max(len(name) for name in picture.names)
    lines = [
        f"{name:>{label}} │{''.join(_SHADES[level[i, k]] for i in range(shown))}│"
        for k, name in enumerate(picture.names)
    ]
    hidden = len(picture.counts) - shown
    rest = f"  (the first {shown} clients; {hidden} more)" if hidden else ""
    wide = max(len(name) for name, _ in picture.facts)
    facts = [f"{name:<{wide}}  {value}" for name, value in picture.facts]
    return "\n".join([picture.title, *lines, f"{'':>{label}}  clients →{rest}", "", *facts])


def as_svg(picture: SplitCounts) -> str:
    """Return the picture of the first clients as an SVG file."""
    return disc_picture(picture.counts[:_SHOWN].tolist(), picture.names, picture.title)


def as_document(picture: SplitCounts) -> Document:
    """Return the page of a split: its label picture, the clients' sizes, and what to know at a glance."""
    shown = picture.counts[:_SHOWN]
    hidden = len(picture.counts) - len(shown)
    some = f"The first {len(shown)} of {len(picture.counts)} clients. " if hidden else ""
    sizes = np.sort(picture.counts.sum(1))[::-1]
    places = np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), 400)).round().astype(int))
    chart = Chart(
        id="sizes",
        title="Samples per client, the largest first",
        x=Axis(label="clients"),
        y=Axis(label="samples"),
        series=(
            Series(
                name="samples",
                x=tuple((places + 1).tolist()),
                y=tuple(sizes[places].tolist()),
                kind="bars" if len(sizes) <= _SHOWN else "line",
            ),
        ),
    )
    grid = label_grid(
        "Labels", picture.names, shown.tolist(), f"{some}A disc's area is the number of samples."
    )
    section = Section(id="split", title="Split", blocks=(grid, chart))
    return Document(title=picture.title, kind="split", facts=tuple(picture.facts), sections=(section,))


def as_png(picture: SplitCounts, cell: int = 16) -> bytes:
    """Return the picture as a PNG: a square per client and class, darker for more samples."""
    counts = picture.counts[:_SHOWN]
    weight = np.sqrt(counts / max(1, counts.max())).T[:, :, None]
    pixels = np.rint(255 + weight * (_INK - 255)).astype(np.uint8)
    pixels = pixels.repeat(cell, axis=0).repeat(cell, axis=1)
    pixels[::cell, :], pixels[:, ::cell] = 235, 235
    return encode_png(pixels)
