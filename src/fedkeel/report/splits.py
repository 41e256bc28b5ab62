"""The picture of a split: clients across, classes down, a disc's area the number of samples."""

from __future__ import annotations

import math
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedkeel.data.federation import Federation
from fedkeel.data.sources.readers import encode_png
from fedkeel.errors import DataError
from fedkeel.report.charts import Drawing, disc_grid
from fedkeel.report.style import html_page

Counts = NDArray[np.int64]
_SHADES = " ░▒▓█"
_INK = np.array([37, 99, 201])


class SplitCounts(NamedTuple):
    """How a federation is split: samples of each client (row) and class (column)."""

    title: str
    counts: Counts
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
    targets = federation.y
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.ndim != 1:
        raise DataError("only classes can be drawn: these targets are not one whole number per sample")
    classes = federation.classes or int(targets.max()) + 1
    clients = len(federation.offsets) - 1
    owner = np.repeat(np.arange(clients), federation.offsets.diff().numpy())
    label = targets[federation.index].numpy()
    counts = np.bincount(owner * classes + label, minlength=clients * classes).reshape(clients, classes)
    origin = federation.origin
    title = f"{origin.get('dataset', 'data')}, {origin.get('splitter', 'given split')}, {clients} clients"
    return SplitCounts(title, counts.astype(np.int64), tuple(str(k) for k in range(classes)))


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


def as_drawing(picture: SplitCounts, limit: int = 100) -> Drawing:
    """Return the picture of the first clients: a disc per client and class, its area the samples."""
    return disc_grid(picture.counts[:limit].tolist(), picture.names, picture.title)


def as_svg(picture: SplitCounts) -> str:
    """Return the picture as an SVG file."""
    return as_drawing(picture).file()


def as_html(picture: SplitCounts) -> str:
    """Return a page that holds the picture and what one wants to know of the split."""
    facts = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in picture.facts
    )
    drawn = f'<div class="scroll">{as_drawing(picture).inline()}</div>'
    return html_page(picture.title, f'<table class="facts">{facts}</table>{drawn}')


def as_png(picture: SplitCounts, limit: int = 100, cell: int = 16) -> bytes:
    """Return the picture as a PNG: a square per client and class, darker for more samples."""
    counts = picture.counts[:limit]
    weight = np.sqrt(counts / max(1, counts.max())).T[:, :, None]
    pixels = np.rint(255 + weight * (_INK - 255)).astype(np.uint8)
    pixels = pixels.repeat(cell, axis=0).repeat(cell, axis=1)
    pixels[::cell, :], pixels[:, ::cell] = 235, 235
    return encode_png(pixels)
