"""Draws the pictures of docs/concepts.md: `python docs/concept_pictures.py`.

The picture of drift is computed, not sketched: two clients with quadratic losses, FedAvg and SCAFFOLD with the
same steps. Colours follow the reader's system, light or dark.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np
from fedkeel.report.charts import Drawing

HERE = Path(__file__).parent / "pictures"
MORE = """<style>
text.ink { fill: var(--ink) } text.big { font-size: 15px; font-weight: 600 } text.code { font-family: ui-monospace, monospace }
text.tint { fill: var(--c) } .box { fill: var(--well); stroke: var(--rule); stroke-width: 1.5 } .tinted { stroke: var(--c) }
.arrow { fill: none; stroke: var(--quiet); stroke-width: 1.8 } .tip { fill: var(--quiet) } .ctip { fill: var(--c) }
.walk { fill: none; stroke: var(--c); stroke-width: 2.2 } .level { fill: none; stroke: var(--rule); stroke-width: 1.3 }
</style>"""
ARROWS = """<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0 0L10 5L0 10z"/></marker></defs>"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "") -> str:
    """Return a box with round corners."""
    return f'<rect class="box {kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"/>'


def arrow(path: str) -> str:
    """Return a line that ends in a tip."""
    return f'<path class="arrow" d="{path}" marker-end="url(#tip)"/>'


def a_round() -> Drawing:
    """Draw the life of a round."""
    parts = [MORE, ARROWS, box(16, 70, 190, 160, "c0 tinted")]
    parts += [
        text(111, 100, "server", "ink big"),
        text(111, 126, "model x", "ink"),
        text(111, 146, "the method's state"),
    ]
    parts += [text(111, 182, "1  draw a cohort", "ink"), text(111, 204, "5  aggregate → new x", "ink")]
    for index, height in enumerate((16, 122, 228)):
        parts += [box(470, height, 274, 84, "c2 tinted")]
        name = f"client {('3', '17', '42')[index]}"
        parts += [
            text(486, height + 24, name, "ink big", "start"),
            text(728, height + 24, "own data", "", "end"),
        ]
        parts += [text(486, height + 48, "3  plan → walk of K steps → finish", "ink", "start")]
        parts += [text(486, height + 70, "keeps its memory between rounds", "", "start")]
    parts += [arrow("M206 110C300 100 360 60 466 50"), arrow("M206 125C300 125 370 140 466 152")]
    parts += [arrow("M206 140C300 150 370 230 466 250")]
    parts += [text(292, 50, "2  Down", "ink"), text(292, 68, "the same for all")]
    parts += [
        box(262, 246, 128, 60, "c1 tinted"),
        text(326, 271, "reducer", "ink big"),
        text(326, 292, "4  mean of all Up", "ink"),
    ]
    parts += [arrow("M468 290C440 290 420 285 394 280"), arrow("M468 190C420 190 400 225 370 244")]
    parts += [arrow("M468 84C360 110 340 180 330 242"), arrow("M262 276C200 276 130 270 112 236")]
    parts += [text(430, 318, "Up")]
    return Drawing(760, 330, "One round: draw a cohort, send, walk locally, reduce, aggregate", tuple(parts))


def drift() -> Drawing:
    """Compute and draw two clients' walks, and where FedAvg and SCAFFOLD end."""
    hessians = np.array([[[1.0, 0.0], [0.0, 0.12]], [[0.14, 0.05], [0.05, 1.0]]])
    optima = np.array([[-1.0, -0.9], [1.2, 0.9]])
    best = np.linalg.solve(hessians.sum(0), np.einsum("cij,cj->i", hessians, optima))
    rate, steps = 0.2, 22

    def walk(client: int, start: np.ndarray, push: np.ndarray) -> np.ndarray:
        points = [start]
        for _ in range(steps):
            points.append(points[-1] - rate * (hessians[client] @ (points[-1] - optima[client]) + push))
        return np.array(points)

    def rounds(*, correct: bool, count: int) -> tuple[np.ndarray, list[np.ndarray]]:
        x, c_i, path, first = np.array([0.35, -1.1]), np.zeros((2, 2)), [], []
        for turn in range(count):
            path.append(x)
            c = c_i.mean(0)
            walks = [walk(client, x, (c - c_i[client]) if correct else np.zeros(2)) for client in (0, 1)]
            c_i = np.array([c_i[i] - c + (walks[i][0] - walks[i][-1]) / (rate * steps) for i in (0, 1)])
            first = walks if turn == 0 else first
            x = np.mean([one[-1] for one in walks], axis=0)
        return np.array([*path, x]), first

    fedavg, walks = rounds(correct=False, count=40)
    scaffold, _ = rounds(correct=True, count=40)

    def place(points: np.ndarray) -> list[tuple[float, float]]:
        return [(250 + 170 * float(x), 175 - 125 * float(y)) for x, y in points]

    def line(points: np.ndarray, kind: str) -> str:
        return f'<path class="{kind}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in place(points)) + '"/>'

    parts = [MORE]
    for level in (0.06, 0.3, 0.75, 1.5, 2.6, 4.2):  # of the mean loss: ellipses around its minimum
        values, vectors = np.linalg.eigh(hessians.sum(0))
        turn = np.linspace(0, 2 * np.pi, 73)
        ring = np.stack([np.cos(turn), np.sin(turn)], 1) * np.sqrt(level / values)
        parts.append(line(best + ring @ vectors.T, "level"))
    parts += [line(walks[0], "walk c0"), line(walks[1], "walk c1")]
    parts += [line(fedavg, "line dashed c4"), line(scaffold, "line c2")]
    for points, kind in ((fedavg[1:9], "c4"), (scaffold[1:9], "c2")):
        parts += [f'<circle class="disc {kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in place(points)]
    (ax, ay), (bx, by) = place(optima)
    (sx, sy), (fx, fy), (ox, oy) = place(np.array([fedavg[0], fedavg[-1], best]))
    parts += [
        f'<circle class="disc c0" cx="{ax:.1f}" cy="{ay:.1f}" r="6"/>',
        text(ax, ay - 14, "best for A", "c0 tint"),
    ]
    parts += [
        f'<circle class="disc c1" cx="{bx:.1f}" cy="{by:.1f}" r="6"/>',
        text(bx, by - 14, "best for B", "c1 tint"),
    ]
    parts += [
        f'<circle class="disc c7" cx="{sx:.1f}" cy="{sy:.1f}" r="5"/>',
        text(sx, sy + 24, "x at first", "ink"),
    ]
    parts += [
        f'<path class="axis" stroke-width="2.5" d="M{ox - 7:.1f} {oy:.1f}h14M{ox:.1f} {oy - 7:.1f}v14"/>'
    ]
    parts += [text(ox - 14, oy - 14, "best for both", "ink")]
    parts += [
        text(560, 60, "first walk of A", "c0 tint", "start"),
        text(560, 84, "first walk of B", "c1 tint", "start"),
    ]
    parts += [
        text(560, 124, "FedAvg, round by round", "c4 tint", "start"),
        text(560, 142, "(ends at the ring: beside it)", "c4 tint", "start"),
    ]
    parts += [
        text(560, 182, "SCAFFOLD, same steps", "c2 tint", "start"),
        text(560, 200, "(reaches it)", "c2 tint", "start"),
    ]
    parts += [f'<circle class="c4 point hollow" cx="{fx:.1f}" cy="{fy:.1f}" r="6" stroke-width="2"/>']
    return Drawing(
        760,
        350,
        "Drift: local walks bend to each client's own optimum, their mean misses the common one",
        tuple(parts),
    )


def plan() -> Drawing:
    """Draw the one local step, and which methods set which of its words."""
    words = (
        ("gain·g", "c0", "FedCM", "MimeLite"),
        ("push", "c1", "SCAFFOLD", "FedDyn"),
        ("pull·(y − anchor)", "c2", "FedProx, FedDyn", "FedACG, FedSpeed"),
        ("decay·y", "c3", "FedSAGD", ""),
        ("wd·y", "c7", "weight decay", "of the run"),
    )
    parts = [MORE, text(20, 34, "every local step of every method", "ink big", "start")]
    parts += [text(20, 88, "y  ←  y − η · (", "ink code", "start")]
    left = 150
    for index, (word, colour, *who) in enumerate(words):
        width = 9.2 * len(word) + 26
        parts += [
            box(left, 64, width, 38, f"{colour} tinted"),
            text(left + width / 2, 88, word, f"ink code {colour}"),
        ]
        parts += [text(left + width / 2, 126 + 18 * n, name) for n, name in enumerate(who)]
        left += width + 22
        parts += [text(left - 11, 88, "+" if index < len(words) - 1 else ")", "ink code")]
    rows = (
        ("start", "where the walk begins: relaxed(…) and FedInit move it, FedACG looks ahead"),
        ("sharp", "take g at a shifted point: FedSAM, FedSpeed, FedSMOO, sharp(…)"),
        ("momentum", "local momentum on the whole direction: FedLNAG"),
        ("objective", "an extra loss from extra forward passes: FedNTD, MOON"),
        ("full_gradient", "one gradient over all of a client's data: MimeLite, SCAFFOLD option I"),
    )
    for index, (word, meaning) in enumerate(rows):
        parts += [
            text(20, 192 + 24 * index, word, "ink code", "start"),
            text(140, 192 + 24 * index, meaning, "", "start"),
        ]
    return Drawing(760, 306, "The plan: one step, nine words, and the methods that use each", tuple(parts))


def relaxed() -> Drawing:
    """Draw the start of a client under relaxed initialisation."""
    parts = [MORE, ARROWS]
    last, x, z = (110, 210), (350, 150), (446, 126)
    parts += [f'<path class="line dashed c7" d="M{last[0]} {last[1]}L{z[0]} {z[1]}"/>']
    parts += [
        f'<path class="walk c0" d="M{z[0]} {z[1]}C520 150 520 220 420 244S300 262 236 252" marker-end="url(#tip)"/>'
    ]
    parts += [
        f'<path class="walk c4 dashed" d="M{x[0]} {x[1]}C390 176 360 226 290 240S200 262 150 248" marker-end="url(#tip)"/>'
    ]
    for (left, top), kind in ((last, "c1"), (x, "c7"), (z, "c0")):
        parts.append(f'<circle class="disc {kind}" cx="{left}" cy="{top}" r="6"/>')
    parts += [
        text(20, 170, "w_i: where this client", "c1 tint", "start"),
        text(20, 188, "ended the last time", "c1 tint", "start"),
    ]
    parts += [text(338, 136, "x: what the server sends", "ink", "end")]
    parts += [
        text(458, 112, "z = x + β·(x − w_i)", "c0 tint code", "start"),
        text(458, 94, "the relaxed start", "c0 tint", "start"),
    ]
    parts += [
        text(530, 226, "walk from z", "c0 tint", "start"),
        text(158, 274, "walk from x: back to its own data", "c4 tint", "start"),
    ]
    parts += [
        text(20, 34, "relaxed initialisation: step back from your own last model first", "ink big", "start")
    ]
    return Drawing(760, 290, "Relaxed start: away from the client's own last end model", tuple(parts))


if __name__ == "__main__":
    for name, picture in (("round", a_round()), ("drift", drift()), ("plan", plan()), ("relaxed", relaxed())):
        (HERE / f"concept-{name}.svg").write_text(picture.file() + "\n")
