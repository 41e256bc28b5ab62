"""Static pictures: well formed, inside their frame, and what they show."""

from __future__ import annotations

import re
from base64 import b64decode
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from fedkeel.common.picture import disc_picture, inline_lines, line_picture
from fedkeel.report import Trial
from fedkeel.report.inline import inline_chart, inline_table

SVG = "{http://www.w3.org/2000/svg}"


def curves(text: str) -> list[list[tuple[float, float]]]:
    """Return the pixels of every curve, and check that all is inside the frame."""
    root = ElementTree.fromstring(text)
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    found = []
    for path in root.iter(f"{SVG}path"):
        points = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.attrib["d"])]
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
        if path.find(f"{SVG}title") is not None:
            found.append(points)
    return found


@pytest.mark.parametrize("log", [False, True])
def test_a_curve_rises_where_its_numbers_do(log: bool) -> None:
    (drawn,) = curves(line_picture("t", {"a": [(1, 0.1), (2, 1.0), (3, 100.0)]}, log=log))
    ys = [y for _, y in drawn]
    assert ys == sorted(ys, reverse=True)
    assert len({round(b - a, 1) for (a, _), (b, _) in pairwise(drawn)}) == 1


def test_flat_single_and_absent_curves_draw_something() -> None:
    assert curves(line_picture("t", {"a": [(1, 0.5), (2, 0.5)]}))
    assert curves(line_picture("t", {"a": [(1, 0.5)]}))
    assert "nothing to draw" in line_picture("t", {"a": []})
    assert "nothing to draw" in line_picture("t", {"a": [(1, -1.0)]}, log=True)


def test_names_are_escaped_and_many_curves_told_apart() -> None:
    text = line_picture("<t>", {f"<b>{i}": [(1, i), (2, i)] for i in range(12)})
    assert "<b>" not in text
    kinds = set(re.findall(r'class="(line c\d d\d)"', text))
    assert len(kinds) == 12


def test_the_area_of_a_disc_is_the_number_of_samples() -> None:
    root = ElementTree.fromstring(disc_picture([[4, 0], [1, 1]], ["a", "b"], "t"))
    radii = [float(circle.attrib["r"]) for circle in root.iter(f"{SVG}circle")]
    assert radii[0] == pytest.approx(2 * radii[1], abs=0.01)
    assert len(radii) == 3


def test_a_cell_of_a_notebook_holds_mean_and_band_as_an_image() -> None:
    trials = [
        Trial(method, seed, [{"round": i, "accuracy": a + seed / 10} for i, a in enumerate((0.1, 0.5))])
        for method in ("A", "<B>")
        for seed in (0, 1)
    ]
    cell = inline_chart(trials)
    assert cell.startswith(
        '<img alt="accuracy of A, &lt;B&gt; over the rounds" src="data:image/svg+xml;base64,'
    )
    drawn = b64decode(cell.partition("base64,")[2].removesuffix('">')).decode()
    assert len(curves(drawn)) == 2
    assert drawn.count('class="band') == 2
    assert len(cell) < 20_000
    assert inline_chart([Trial("A", 0, [])]) == ""
    assert "&lt;B&gt;" in inline_table(["<B>"], [["x"]])
    assert (
        "40 %" in b64decode(inline_lines("accuracy", {"a": [(1, 0.4), (2, 0.8)]}).split(",")[1][:-2]).decode()
    )
