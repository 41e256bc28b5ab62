"""The picture of a split: clients across, classes down, a disc's area the number of samples."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkeel.data.federation import Federation
from fedkeel.errors import DataError

Counts = NDArray[np.int64]
_CELL, _MARGIN = 22, 64
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
    if federation.y.is_floating_point() or federation.y.ndim != 1:
        raise DataError("only classes can be drawn: these targets are not one whole number per sample")
    classes = federation.classes or int(federation.y.max()) + 1
    clients = len(federation.offsets) - 1
    owner = np.repeat(np.arange(clients), federation.offsets.diff().numpy())
    label = federation.y[federation.index].numpy()
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


def as_svg(picture: SplitCounts, limit: int = 100) -> str:
    """Return the picture of the first clients as an SVG element."""
    counts = picture.counts[:limit]
    clients, classes = counts.shape
    foot = classes * _CELL
    width, height = _MARGIN + clients * _CELL + 10, foot + 56
    top = max(1, int(counts.max()))
    discs = [
        f'<circle cx="{_MARGIN + (i + 0.5) * _CELL:g}" cy="{(k + 0.5) * _CELL:g}" '
        f'r="{0.48 * _CELL * math.sqrt(counts[i, k] / top):.2f}">'
        f"<title>client {i}, class {picture.names[k]}: {counts[i, k]} samples</title></circle>"
        for i in range(clients)
        for k in range(classes)
        if counts[i, k]
    ]
    rows = [
        f'<text x="{_MARGIN - 8}" y="{(k + 0.5) * _CELL + 4:g}" text-anchor="end">{escape(name)}</text>'
        for k, name in enumerate(picture.names)
    ]
    ticks = [
        f'<text x="{_MARGIN + (i + 0.5) * _CELL:g}" y="{foot + 18}" text-anchor="middle">{i}</text>'
        for i in range(0, clients, max(1, clients // 20))
    ]
    title = f'<text x="{_MARGIN}" y="{foot + 42}">client → &#160; area = samples, largest {top}</text>'
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="13" '
        f'fill="#667085"><g fill="rgb({_INK[0]},{_INK[1]},{_INK[2]})">{"".join(discs)}</g>'
        f"{''.join(rows + ticks)}{title}</svg>"
    )


def as_html(picture: SplitCounts) -> str:
    """Return a page that holds the picture and what one wants to know of the split."""
    facts = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in picture.facts
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(picture.title)}</title>'
        "<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;"
        "margin:40px auto;padding:0 24px}h1{font-size:1.3rem}div{overflow-x:auto}"
        "td{padding:2px 18px 2px 0}</style>"
        f"<h1>{escape(picture.title)}</h1><table>{facts}</table><div>{as_svg(picture)}</div></html>"
    )


def as_png(picture: SplitCounts, limit: int = 100, cell: int = 16) -> bytes:
    """Return the picture as a PNG: a square per client and class, darker for more samples."""
    counts = picture.counts[:limit]
    weight = np.sqrt(counts / max(1, counts.max())).T[:, :, None]
    pixels = np.rint(255 + weight * (_INK - 255)).astype(np.uint8)
    pixels = pixels.repeat(cell, axis=0).repeat(cell, axis=1)
    pixels[::cell, :], pixels[:, ::cell] = 235, 235
    return _png(pixels)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode RGB pixels (height, width, 3); the format is small enough to need no library."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts: Sequence[tuple[bytes, bytes]] = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    chunks = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
